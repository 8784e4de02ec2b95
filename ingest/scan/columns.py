"""Decoded events to one Arrow batch with exactly the columns of `RAW_EVENTS`.

Events of one kind have the same keys in the same order, and a trace has only a few dozen such layouts. Events
are therefore grouped by their keys, and each group is turned into columns as a whole: no work is done event by
event beyond the grouping and one format call for the arguments that have no column.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankscope.store.schema import RAW_EVENTS

from .extras import Extras
from .keys import ARG_KEYS, CATEGORIES, EVENT_KEYS, Kind, present_keys
from .numbers import Mask, Token, flag_column, int_column, ns_column, token_array, word_column

Event = dict[str, msgspec.Raw]
Rows = npt.NDArray[np.int64]

SCHEMA = RAW_EVENTS.arrow
_ARGS = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)
_STREAM_TID = re.compile(r"stream (\d{1,18})", re.ASCII)


class _Cells:
    """The tokens found so far for one column, and their rows."""

    def __init__(self, kind: Kind, key: str) -> None:
        self.kind = kind
        self.key = key
        self.rows: list[Rows] = []
        self.tokens: list[Sequence[Token]] = []

    def add(self, rows: Rows, tokens: Sequence[Token]) -> None:
        self.rows.append(rows)
        self.tokens.append(tokens)

    def joined(self) -> tuple[Rows, pa.StringArray]:
        return np.concatenate(self.rows), token_array(list(chain.from_iterable(self.tokens)))


def record_batch(events: Sequence[Event]) -> pa.RecordBatch:
    """The events as one batch, in their order; every value that fits no column stands in `extra`."""
    n = len(events)
    cells: dict[str, _Cells] = {}
    extras = Extras(n)
    arg_rows: list[Rows] = []
    arg_tokens: list[Sequence[Token]] = []
    for keys, rows, columns in _grouped(events):
        if "args" in keys:
            arg_rows.append(rows)
            arg_tokens.append(columns[keys.index("args")])
        rest = [i for i, k in enumerate(keys) if k not in EVENT_KEYS and k != "args"]
        extras.add_event_keys([keys[i] for i in rest], rows, [columns[i] for i in rest])
        _collect(cells, EVENT_KEYS, keys, rows, columns)
    if arg_rows:
        _add_args(cells, extras, np.concatenate(arg_rows), list(chain.from_iterable(arg_tokens)))
    arrays = _convert(cells, extras, n)
    arrays["extra"] = extras.array()
    return pa.RecordBatch.from_arrays([_cell_array(arrays, f, n) for f in SCHEMA], schema=SCHEMA)


def _grouped(dicts: Sequence[Event]) -> Iterator[tuple[tuple[str, ...], Rows, list[tuple[Token, ...]]]]:
    """Per layout: its keys, the positions of its events, and its values as one tuple per key."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, keys in enumerate(map(tuple, dicts)):
        groups[keys].append(i)
    for keys, rows in groups.items():
        if keys:
            columns = list(zip(*[dicts[i].values() for i in rows], strict=True))
            yield keys, np.array(rows, np.int64), columns


def _collect(
    cells: dict[str, _Cells],
    known: dict[str, tuple[str, Kind]],
    keys: Sequence[str],
    rows: Rows,
    columns: Sequence[Sequence[Token]],
) -> None:
    for key, tokens in zip(keys, columns, strict=True):
        if key in known:
            column, kind = known[key]
            cells.setdefault(column, _Cells(kind, key)).add(rows, tokens)


def _add_args(cells: dict[str, _Cells], extras: Extras, rows: Rows, tokens: Sequence[Token]) -> None:
    try:
        args = _ARGS.decode(b"[" + b",".join(tokens) + b"]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        args, rows = _args_one_by_one(extras, rows, tokens)
    for keys, members, columns in _grouped(args):
        names = present_keys(keys)
        at = rows[members]
        _collect(cells, ARG_KEYS, names, at, columns)
        rest = [i for i, k in enumerate(names) if k not in ARG_KEYS]
        extras.add_args([names[i] for i in rest], at, [columns[i] for i in rest])


def _args_one_by_one(extras: Extras, rows: Rows, tokens: Sequence[Token]) -> tuple[list[Event], Rows]:
    """The args that are objects; any other value of `args` goes to `extra` as it stands."""
    kept: list[Event] = []
    at: list[int] = []
    for row, token in zip(rows.tolist(), tokens, strict=True):
        try:
            kept.append(_ONE.decode(token))
            at.append(row)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            if bytes(token) != b"null":
                extras.patch(row, "args", bytes(token))
    return kept, np.array(at, np.int64)


def _convert(cells: dict[str, _Cells], extras: Extras, n: int) -> dict[str, pa.Array]:
    arrays: dict[str, pa.Array] = {}
    words_of_tid: tuple[npt.NDArray[np.int32], list[str]] | None = None
    numbers: dict[str, tuple[npt.NDArray[np.int64], Mask]] = {}
    for name, cell in cells.items():
        rows, tokens = cell.joined()
        if cell.kind in (Kind.WORD, Kind.ID, Kind.ANY):
            codes, words = word_column(tokens, cell.kind, _RENAME.get(name))
            _leave(extras, cell.key, rows, tokens, codes >= 0)
            full = np.full(n, -1, np.int32)
            full[rows] = codes
            arrays[name] = _coded(full, words)
            if name == "tid":
                words_of_tid = full, words
        elif cell.kind is Kind.FLAG:
            flags, known = flag_column(tokens)
            _leave(extras, cell.key, rows, tokens, known)
            arrays[name] = _scattered(n, rows, flags, known, np.bool_)
        else:
            values, known, as_written = _numbers(cell.kind, tokens)
            _leave(extras, cell.key, rows, tokens, as_written)
            numbers[name] = _spread(n, rows, values, known)
    _stream_from_tid(numbers, words_of_tid, n)
    _graph_zero_is_none(numbers)
    for name, (values, known) in numbers.items():
        arrays[name] = pa.array(values, mask=~known)
    return arrays


def _present_category(cat: str) -> str:
    return CATEGORIES.get(cat, cat)


_RENAME = {"cat": _present_category}


def _numbers(kind: Kind, tokens: pa.StringArray) -> tuple[npt.NDArray[np.int64], Mask, Mask]:
    if kind is Kind.NS:
        values, known = ns_column(tokens)
        return values, known, known
    return int_column(tokens)


def _leave(extras: Extras, key: str, rows: Rows, tokens: pa.StringArray, taken: Mask) -> None:
    """Values no column could take go to `extra` verbatim."""
    if taken.all():
        return
    for i in np.flatnonzero(~taken).tolist():
        text: str = tokens[i].as_py()
        if text != "null" or key in ARG_KEYS:
            extras.patch(int(rows[i]), key, text.encode())


def _spread(n: int, rows: Rows, values: npt.NDArray[Any], known: Mask) -> tuple[npt.NDArray[Any], Mask]:
    full = np.zeros(n, values.dtype)
    full[rows] = values
    is_known = np.zeros(n, np.bool_)
    is_known[rows] = known
    return full, is_known


def _scattered(n: int, rows: Rows, values: npt.NDArray[Any], known: Mask, dtype: Any) -> pa.Array:
    full, is_known = _spread(n, rows, values.astype(dtype), known)
    return pa.array(full, mask=~is_known)


def _coded(codes: npt.NDArray[np.int32], words: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(words, pa.string()))


def _stream_from_tid(
    numbers: dict[str, tuple[npt.NDArray[np.int64], Mask]],
    tids: tuple[npt.NDArray[np.int32], list[str]] | None,
    n: int,
) -> None:
    """Kernels of 2020-21 name their stream in the thread id alone: `stream 7`."""
    if tids is None:
        return
    codes, words = tids
    matches = [_STREAM_TID.fullmatch(w) for w in words]
    if not any(matches):
        return
    stream_of = np.array([int(m[1]) if m else -1 for m in matches] + [-1], np.int64)
    named = stream_of[codes]
    values, known = numbers.get("stream", (np.zeros(n, np.int64), np.zeros(n, np.bool_)))
    use = ~known & (named >= 0)
    numbers["stream"] = np.where(use, named, values), known | use


def _graph_zero_is_none(numbers: dict[str, tuple[npt.NDArray[np.int64], Mask]]) -> None:
    """PyTorch 2.13 writes graph 0, node 0 on all activities outside graphs; node 0 of a real graph is kept."""
    in_graph: Mask | None = None
    if "graph_id" in numbers:
        values, known = numbers["graph_id"]
        in_graph = known & (values != 0)
        numbers["graph_id"] = values, in_graph
    if "graph_node_id" in numbers:
        values, known = numbers["graph_node_id"]
        keep = values != 0 if in_graph is None else (values != 0) | in_graph
        numbers["graph_node_id"] = values, known & keep


def _cell_array(arrays: dict[str, pa.Array], field: pa.Field, n: int) -> pa.Array:
    found = arrays.get(field.name)
    if found is not None:
        return found
    if pa.types.is_dictionary(field.type):
        return pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int32()), pa.array([], pa.string()))
    return pa.nulls(n, field.type)
