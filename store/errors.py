"""The exception family: what went wrong, where, and what to do next."""

from __future__ import annotations


class TraceError(Exception):
    """A problem the user can act on; printed as one or two lines, never as a traceback.

    Args:
        message: what is wrong, in words of the field.
        path: the file, URL or folder it is about (None when it is about no file).
        hint: what to do next, one sentence.
        offset: byte offset in the uncompressed content, when known.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, path: str | None = None, hint: str | None = None, offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint
        self.offset = offset

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        hint = f"\n  {self.hint}" if self.hint else ""
        return f"{where}{self.message}{at}{hint}"

    def __reduce__(self) -> tuple[object, ...]:  # travels between worker processes
        return (_rebuild, (type(self), self.message, self.path, self.hint, self.offset))


def _rebuild(
    kind: type[TraceError], message: str, path: str | None, hint: str | None, offset: int | None
) -> TraceError:
    return kind(message, path=path, hint=hint, offset=offset)


class UsageError(TraceError):
    """The command or call itself is wrong: an option, a value, a path that does not exist."""

    exit_code = 2


class UnreadableFile(TraceError):
    """The bytes cannot be had: permissions, a network failure, a broken compression stream."""


class UnknownFormat(TraceError):
    """The bytes are readable but are no trace this version knows."""


class DamagedFile(TraceError):
    """The file is a trace, but nothing whole could be recovered from it."""


class RankConflict(TraceError):
    """Two files claim the same rank and window; nothing else is left to analyse."""


class MissingColumn(TraceError):
    """A table lacks a column that an analysis needs."""

    exit_code = 70


class EmptyRun(TraceError):
    """Nothing to analyse: no readable trace, or no activity in it."""


class StoreVersion(TraceError):
    """The run store was written by an incompatible version, or is not complete."""


class QualityFailure(TraceError):
    """`--strict`: warnings or errors stand in the quality table."""

    exit_code = 4


class ClosureError(TraceError):
    """Parts do not add up to their whole: a defect of Rankscope, never of the user's file."""

    exit_code = 70
