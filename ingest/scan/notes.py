"""What a scan had to repair, skip or give up, counted with the first instance and its byte offset."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.store.schema import Quality, Severity

from .repair import Repairs

_EFFECTS = {
    "string_repaired": "names keep their text; backslashes stand as written, unreadable bytes became U+FFFD",
    "number_not_finite": "the value is null and enters no sum",
    "syntax_repaired": "stray commas, Python words or malformed numbers were read as meant",
    "event_skipped": "this part of the event list is lost: its time counts as idle or unrecorded",
    "header_skipped": "these metadata are not available",
    "file_truncated": "everything before this point is used; what followed is lost",
    "file_empty": "the file contributes nothing",
    "array_not_closed": "legal for this format: whether later events were lost cannot be told",
}
_INFO = ("array_not_closed",)

TRAILING_COMMA = "comma before the end of the event list"
MISSING_COMMA = "no comma between two events"


@dataclass
class _Note:
    count: int
    example: str


class Notes:
    """Collects findings by code."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}

    def add(self, code: str, example: str, *, offset: int | None = None, count: int = 1) -> None:
        """Count a finding; the first one's example is kept."""
        note = self._notes.get(code)
        if note is not None:
            note.count += count
            return
        where = f" at byte {offset}" if offset is not None else ""
        self._notes[code] = _Note(count, f"{example}{where}")

    def add_repairs(self, repairs: Repairs | None, base: int) -> None:
        """Count repairs of a text that starts at byte `base`."""
        if repairs is None:
            return
        for code, count in repairs.counts.items():
            self.add(code, repairs.examples[code], offset=base + repairs.offsets[code], count=count)

    def count(self, code: str) -> int:
        """How often the finding was made."""
        note = self._notes.get(code)
        return note.count if note else 0

    def quality(self) -> list[Quality]:
        """The findings as quality rows, by code."""
        return [
            Quality(
                code,
                Severity.INFO if code in _INFO else Severity.WARNING,
                None,
                note.count,
                note.example,
                _EFFECTS[code],
            )
            for code, note in sorted(self._notes.items())
        ]
