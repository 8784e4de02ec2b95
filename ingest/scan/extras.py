"""The `extra` column: one JSON object per event with every value that has no column, verbatim.

Arguments stand flat under their own keys, other keys of the event under theirs. Where both use one key the
event's keeps it and the argument is called `args.<key>`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .numbers import Token

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Part:
    """The leftovers of one origin (the event's keys, or its arguments): a text per row, and its layout."""

    def __init__(self, n: int) -> None:
        self.texts: npt.NDArray[np.object_] = np.full(n, None, object)
        self.layout_of = np.full(n, -1, np.int32)
        self.layouts: list[tuple[str, ...]] = []

    def add(
        self, keys: Sequence[str], rows: npt.NDArray[np.int64], columns: Sequence[Sequence[Token]]
    ) -> None:
        if not keys:
            return
        names = [_key(k).replace(b"%", b"%%") for k in keys]
        template = b"{" + b", ".join(name + b": %b" for name in names) + b"}"
        texts = np.empty(len(rows), object)
        texts[:] = [template % values for values in zip(*columns, strict=True)]
        self.texts[rows] = texts
        self.layout_of[rows] = len(self.layouts)
        self.layouts.append(tuple(keys))


class Extras:
    """Collects what has no column, then makes the column."""

    def __init__(self, n: int) -> None:
        self._event = _Part(n)
        self._args = _Part(n)
        self._patches: list[tuple[int, str, bytes]] = []

    def add_event_keys(
        self, keys: Sequence[str], rows: npt.NDArray[np.int64], columns: Sequence[Sequence[Token]]
    ) -> None:
        """Keys of the event itself that have no column, for events of one layout."""
        self._event.add(keys, rows, columns)

    def add_args(
        self, keys: Sequence[str], rows: npt.NDArray[np.int64], columns: Sequence[Sequence[Token]]
    ) -> None:
        """Arguments that have no column, for events of one layout."""
        self._args.add(keys, rows, columns)

    def patch(self, row: int, key: str, token: bytes) -> None:
        """One value that its column could not take."""
        self._patches.append((row, key, token))

    def array(self) -> pa.StringArray:
        """The column; null where nothing is left over."""
        texts = np.where(self._args.layout_of >= 0, self._args.texts, self._event.texts)
        both = np.flatnonzero((self._args.layout_of >= 0) & (self._event.layout_of >= 0))
        if len(both):
            texts[both] = self._joined(both)
        for row, key, token in self._patches:
            texts[row] = with_value(texts[row], key, token)
        return pa.array(texts.tolist(), pa.binary()).cast(pa.string())

    def _joined(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
        """Event keys and arguments in one object, clashing arguments renamed."""
        pairs = set(
            zip(self._event.layout_of[rows].tolist(), self._args.layout_of[rows].tolist(), strict=True)
        )
        clash = any(set(self._event.layouts[e]) & set(self._args.layouts[a]) for e, a in pairs)
        join = _join_renaming if clash else _join
        out = np.empty(len(rows), object)
        out[:] = [join(e, a) for e, a in zip(self._event.texts[rows], self._args.texts[rows], strict=True)]
        return out


def _join(event: bytes, args: bytes) -> bytes:
    return event[:-1] + b", " + args[1:]


def _join_renaming(event: bytes, args: bytes) -> bytes:
    taken = _OBJECT.decode(event)
    values = _OBJECT.decode(args)
    return object_text(taken | {f"args.{k}" if k in taken else k: v for k, v in values.items()})


def with_value(text: bytes | None, key: str, token: bytes) -> bytes:
    """The object with one more value; what stood under that key becomes `args.<key>`."""
    values = _OBJECT.decode(text) if text else {}
    if key in values:
        values[f"args.{key}"] = values.pop(key)
    values[key] = msgspec.Raw(token)
    return object_text(values)


def object_text(values: dict[str, msgspec.Raw]) -> bytes:
    """JSON text of an object whose values are JSON text already."""
    return b"{" + b", ".join(_key(k) + b": " + bytes(v) for k, v in values.items()) + b"}"


def _key(key: str) -> bytes:
    return msgspec.json.encode(key)
