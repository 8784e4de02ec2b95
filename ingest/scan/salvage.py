"""The whole events of a damaged stretch of the event list, in order, and nothing else.

A stretch that does not decode as a whole is cut at probable boundaries and decoded in blocks that halve on
failure and double on success, so that one bad event among a million costs a few milliseconds. A bad event is
mended if its text allows, else skipped alone; reading goes on at the next plausible start of an event.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property

from .brackets import EVENT_START, UNTERMINATED, boundaries, list_end, sure_list_end, value_extent
from .decode import Event, decoded, decoded_or_repaired
from .notes import MISSING_COMMA, TRAILING_COMMA, Notes
from .repair import requoted

REPAIR_BLOCK = 256
"""Events mended together: mending costs ten times what decoding does, and is only tried on failure."""
REQUOTE_BYTES = 256 << 10
"""Longest event whose quotes are guessed at."""
BLANK = b" \t\r\n,\0"
BLANKS = re.compile(rb"[\s,\x00]*+")
EVIDENCE = 3
"""Following stretches looked at to tell a damaged event from one that holds many objects."""


@dataclass
class Salvaged:
    """What came of a stretch.

    Attributes:
        events: the whole events, in order.
        consumed: bytes of the stretch that are done with.
        is_end: the event list's closing bracket stands at `consumed`.
        open_at: where an event begins that the stretch does not finish.
        is_amid_damage: no whole event was found since the last damage.
    """

    events: list[Event] = field(default_factory=list)
    consumed: int = 0
    is_end: bool = False
    open_at: int | None = None
    is_amid_damage: bool = False


class Salvage:
    """Reads one stretch; `run` gives the result.

    Args:
        text: starts at an event.
        offset: byte offset of the text, for messages.
        is_last: nothing follows the text in the file.
        is_amid_damage: the stretch before ended so; the damage is counted already.
        notes: receives what was mended or skipped.
    """

    def __init__(
        self, text: bytes, *, offset: int, is_last: bool, notes: Notes, is_amid_damage: bool = False
    ) -> None:
        self._text = text
        self._offset = offset
        self._is_last = is_last
        self._notes = notes
        self._pieces = boundaries(text)
        self._starts = [start for start, _ in self._pieces]
        self._out = Salvaged()
        self._budget = 4 * len(text) + (1 << 20)
        self._reached = 0
        self._is_cut = False
        self._damage_from: int | None = None
        self._is_amid_damage = is_amid_damage

    def run(self) -> Salvaged:
        """Read the stretch."""
        at, size = 0, len(self._pieces)
        # What follows the last boundary is complete only at the end of the file.
        n = len(self._pieces) if self._is_last else len(self._pieces) - 1
        while at < n and not self._is_done:
            stop = min(at + size, n)
            if self._block(at, stop):
                at, size = stop, size * 2
            elif stop - at > 1:
                size = (stop - at + 1) // 2
            else:
                position = self._single(at)
                at, size = bisect_left(self._starts, position), 1
        if not self._is_done:
            self._out.consumed = len(self._text) if self._is_last else max(self._starts[-1], self._reached)
        if self._is_last and not self._is_done and self._damage_from is not None:
            self._out.open_at = self._out.consumed = self._skip_blank(self._damage_from)
            self._damage_from = None
        self._close_damage()
        self._out.is_amid_damage = self._is_amid_damage
        return self._out

    def _skip_blank(self, position: int) -> int:
        rest = self._text[position:]
        return position + len(rest) - len(rest.lstrip(BLANK))

    @property
    def _is_done(self) -> bool:
        return self._out.is_end or self._is_cut or self._out.open_at is not None

    def _block(self, at: int, stop: int) -> bool:
        start, end = self._pieces[at][0], self._pieces[stop - 1][1]
        text = self._text[start:end]
        events, repairs = (decoded(text), None) if stop - at > REPAIR_BLOCK else decoded_or_repaired(text)
        if events is None or not self._are_credible(events):
            return False
        self._notes.add_repairs(repairs, self._offset + start)
        self._accept(events)
        return True

    def _are_credible(self, events: list[Event], *, is_guess: bool = False) -> bool:
        """Amid damage an object without a phase is a piece of a broken event (of a list in its arguments)."""
        return not (self._is_amid_damage or is_guess) or all("ph" in e for e in events)

    def _accept(self, events: list[Event]) -> None:
        self._close_damage()
        self._is_amid_damage = False
        self._out.events += events

    def _single(self, index: int) -> int:
        """Read the one event at a boundary that does not decode as it stands; returns where to go on."""
        start, end = self._pieces[index]
        reached = self._whole_value(start)
        if reached > 0:
            position = (
                reached if self._ends_list(reached) else self._inside(reached, self._piece_end(reached))
            )
            self._find_list_end(reached - 1, position)
            return position
        list_end_here = self._sure_end if self._sure_end and start < self._sure_end[0] <= end else None
        stop = list_end_here[0] if list_end_here else end
        if self._requote(start, stop):
            self._find_list_end(stop - 1, end)
            return end
        if reached == UNTERMINATED and self._is_unfinished(index):
            self._out.open_at = self._out.consumed = start
            return end
        self._damage(start)
        position = max(self._inside(start + 1, stop), end)
        self._find_list_end(start, position)
        return position

    @cached_property
    def _sure_end(self) -> tuple[int, int] | None:
        return sure_list_end(self._text)

    def _find_list_end(self, start: int, end: int) -> None:
        """Amid damage, where the list may end without a whole event in front of its bracket."""
        if not self._is_done and self._sure_end and start < self._sure_end[0] <= end:
            self._out.is_end = True
            self._out.consumed = self._sure_end[1]

    def _whole_value(self, start: int, *, is_guess: bool = False) -> int:
        """Accept the bracketed value at `start`; its end, 0 when it is no event, or why there is none."""
        end, reached = value_extent(self._text, start)
        self._budget -= reached - start
        if end <= 0:
            return end
        events, repairs = decoded_or_repaired(self._text[start:end])
        if not events or not self._are_credible(events, is_guess=is_guess):
            return 0
        self._notes.add_repairs(repairs, self._offset + start)
        self._accept(events)
        self._reached = end
        return end

    def _piece_end(self, position: int) -> int:
        """Up to where whole events may follow `position` before the next boundary."""
        index = bisect_left(self._starts, position) - 1
        if index == len(self._pieces) - 1 and not self._is_last:
            return position  # the rest comes again with the next stretch
        return max(self._pieces[index][1], position)

    def _ends_list(self, position: int) -> bool:
        """Whether the closing bracket of the list is what follows."""
        length = list_end(self._text[position : position + 4096])
        if not length:
            return False
        if position + length == len(self._text) and not self._is_last:
            self._is_cut = True  # what stands behind the bracket decides, and is not here yet
            self._out.consumed = position
        else:
            self._out.is_end = True
            self._out.consumed = self._text.index(b"]", position)
            if b"," in self._text[position : self._out.consumed]:
                self._notes.add("syntax_repaired", TRAILING_COMMA, offset=self._offset + position)
        return True

    def _inside(self, position: int, stop: int) -> int:
        """Look for whole events between boundaries; returns where to go on."""
        while self._budget > 0:
            start = self._next_start(position, stop)
            if start is None:
                break
            self._gap(position, start)
            is_joined = not self._is_amid_damage and b"," not in self._text[position:start]
            reached = self._whole_value(start, is_guess=True)
            if is_joined and reached > 0:
                self._notes.add("syntax_repaired", MISSING_COMMA, offset=self._offset + position)
            if reached <= 0:
                self._damage(start)
                position = start + 1
            elif self._ends_list(reached):
                return reached
            else:
                position, stop = reached, max(stop, self._piece_end(reached))
        self._gap(position, stop)
        return stop

    def _next_start(self, position: int, stop: int) -> int | None:
        """Where the next event may begin: at an object right here, else at one with a usual first key."""
        here = BLANKS.match(self._text, position, stop)
        if here and self._text[here.end() : here.end() + 1] == b"{" and here.end() < stop:
            return here.end()
        match = EVENT_START.search(self._text, position, stop)
        return match.start() if match else None

    def _gap(self, start: int, stop: int) -> None:
        """Bytes between two events that belong to neither."""
        rest = self._text[start:stop].strip(BLANK)
        if not rest or self._is_amid_damage:
            return
        if rest.strip(b"]} \t\r\n,\0"):
            self._damage(start)
        else:
            self._notes.add("syntax_repaired", "stray bracket between events", offset=self._offset + start)

    def _requote(self, start: int, stop: int) -> bool:
        if stop - start > REQUOTE_BYTES:
            return False
        for text, repairs in requoted(self._text[start:stop]):
            events = decoded(text)
            if events and "ph" in events[0]:
                self._notes.add_repairs(repairs, self._offset + start)
                self._accept(events)
                self._is_amid_damage = True  # a guess: what follows may still be a part of this event
                return True
        return False

    def _is_followed(self, index: int) -> bool:
        """Whether one of the next stretches is an event of its own."""
        for start, end in self._pieces[index + 1 : index + 1 + EVIDENCE]:
            events, _ = decoded_or_repaired(self._text[start:end])
            if events and "ph" in events[0]:
                return True
        return False

    def _is_unfinished(self, index: int) -> bool:
        """Whether the rest of this event is still to come (or was never written) rather than damaged.

        It may hold a long list of objects that look like boundaries; but not when one of the next stretches is
        an event of its own, or the event list is seen to end.
        """
        if self._is_followed(index):
            return False
        return not self._is_last or self._sure_end is None or self._sure_end[0] <= self._starts[index]

    def _damage(self, start: int) -> None:
        if not self._is_amid_damage:
            self._damage_from = start
            self._is_amid_damage = True

    def _close_damage(self) -> None:
        """One run of unreadable bytes is one finding."""
        if self._damage_from is None:
            return
        start = self._damage_from
        self._damage_from = None
        text = self._text[start : start + 80].decode("utf-8", "backslashreplace")
        self._notes.add("event_skipped", text, offset=self._offset + start)
