"""What the first word of a command line means: a command, a run, or a slip of the fingers."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Collection, Sequence

GLOB_CHARS = frozenset("*?[")


def looks_like_run(word: str) -> bool:
    """Whether the word names a run: an existing path, a URL, a glob with a match, or `-`.

    An existing path is a path even when it looks like a glob (`rank[0].json`).
    """
    if word == "-" or "://" in word or os.path.lexists(word):
        return True
    return bool(GLOB_CHARS & set(word)) and next(glob.iglob(word, recursive=True), None) is not None  # noqa: PTH207


def with_default_command(
    args: Sequence[str], *, commands: Collection[str], options: Collection[str], default: str
) -> list[str]:
    """The arguments with the default command inserted when they start with a run instead of a command.

    A command's name wins over a file of that name. Options may stand before the run
    (`rankscope --format json traces/`) as long as no word is a command.
    """
    if not args or args[0] in commands:
        return list(args)
    first = args[0]
    if looks_like_run(first):
        return [default, *args]
    is_own_option = first.split("=", 1)[0] in options
    if (
        first.startswith("-")
        and not is_own_option
        and not set(args) & set(commands)
        and any(map(looks_like_run, args))
    ):
        return [default, *args]
    return list(args)


def nearest_command(word: str, commands: Collection[str]) -> str:
    """The command that looks most like the word."""
    return difflib.get_close_matches(word, sorted(commands), n=1, cutoff=0.0)[0]
