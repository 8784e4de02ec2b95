"""The command `rankscope`: its commands, its help, and what becomes of errors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from rankscope import __version__
from rankscope.store.keep_out import keep_out

from . import breakdown, gaps, info, ingest, kernels, process, simulate, suggest, summary, text
from .options import command_of

PROG = "rankscope"
DEFAULT = "summary"
ABOUT = "Where did every GPU-nanosecond of a multi-GPU run go, and why?"
RUN_IS = (
    "RUN is a PyTorch profiler trace, a folder or glob of them, a URL, several of\n"
    "these, a run store written by `ingest`, or - for standard input.\n"
    "`rankscope RUN` is `rankscope summary RUN`."
)


def _later() -> None:
    """Stand for a command whose options are loaded when it is used."""


LATER = {"simulate": simulate.command}
"""Commands that are built when they are used, to keep `--help` fast."""
PANELS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "Start here": {"summary": (summary.summary, summary.QUESTION)},
    "Look closer": {
        "breakdown": (breakdown.breakdown, breakdown.QUESTION),
        "gaps": (gaps.gaps, gaps.QUESTION),
        "kernels": (kernels.kernels, kernels.QUESTION),
    },
    "The data": {"info": (info.info, info.QUESTION), "ingest": (ingest.ingest, ingest.QUESTION)},
    "Automation": {"simulate": (_later, simulate.QUESTION)},
}
"""Commands under their headings, each with the question it answers."""
STORAGE_PACKAGES = frozenset(
    {
        "botocore",
        "aiobotocore",
        "s3fs",
        "gcsfs",
        "google",
        "azure",
        "adlfs",
        "aiohttp",
        "requests",
        "paramiko",
    }
)
"""Packages behind fsspec whose errors are of no common kind: the storage's problem, not ours."""
EXIT_USAGE, EXIT_INPUT, EXIT_INTERNAL, EXIT_INTERRUPTED = 2, 3, 70, 130
UsageProblem: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's own usage error, wherever this Typer keeps it (its private click, or click)."""
CommandProblem: type[Exception] = UsageProblem.__mro__[1]


class Group(TyperGroup):
    """The group of commands: plain help under headings, and `summary` when the first word is a run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command where the command line starts with a run."""
        if not ctx.resilient_parsing:
            options = {o for p in self.params for o in p.opts}
            args = suggest.with_default_command(
                args, commands=self.commands, options=options, default=DEFAULT
            )
            if not args:
                args = ["--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of that name; any other word is a usage error that names the nearest one."""
        if args and args[0] not in self.commands and not ctx.resilient_parsing:
            near = suggest.nearest_command(args[0], self.commands)
            raise UsageProblem(
                f"{args[0]!r} is no command and no such file exists. Nearest command: {near!r}.", ctx
            )
        name, command, rest = super().resolve_command(ctx, args)
        if name in LATER:
            command = _built(name, PANELS["Automation"][name][1])
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what a run is, the commands under their headings with the question each answers, options."""
        formatter.write(f"Usage: {PROG} RUN... [OPTIONS]\n       {PROG} COMMAND RUN... [OPTIONS]\n\n")
        formatter.write(f"{ABOUT}\n\n{RUN_IS}\n")
        for panel, commands in PANELS.items():
            formatter.write(f"\n{panel}\n")
            for name, (_, question) in commands.items():
                formatter.write(f"  {name:<10} {question}\n")
        formatter.write("\nOptions\n")
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record:
                formatter.write(
                    f"  {record[0].split(' [')[0]:<21} {text.shorten(record[1].split(', ')[0], 56)}\n"
                )
        formatter.write(f"\n`{PROG} COMMAND --help` explains a command and its options.\n")


app = typer.Typer(
    name=PROG, cls=Group, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=True
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{PROG} {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Answer where every GPU-nanosecond of a multi-GPU run went."""


def _built(name: str, question: str) -> Any:
    """A late command, now with its options."""
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    function = LATER[name]()
    alone.command(name, help=f"{question}\n\n{inspect.getdoc(function)}")(function)
    return typer.main.get_command(alone)


for _commands in PANELS.values():
    for _name, (_body, _question) in _commands.items():
        app.command(_name, help=f"{_question}\n\n{inspect.getdoc(_body)}", short_help=_question)(
            command_of(_body)
        )


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line in a process of its own and leave with its exit code."""
    last_word = process.LastWord() if process.owns_process(PROG) else None
    keep_out("pandas")
    code = run(sys.argv[1:] if argv is None else argv)
    _flush_or_silence()
    if last_word:
        last_word.code = code
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """Run the command line; the exit code (CONTRACT section 7). Errors are one or two lines on stderr."""
    group = typer.main.get_command(app)
    if f"_{PROG.upper()}_COMPLETE" in os.environ:
        group.main(args=list(argv), prog_name=PROG)
    _make_output_safe()
    try:
        with group.make_context(PROG, list(argv)) as ctx:
            group.invoke(ctx)
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever went wrong becomes an exit code
        return _explain(error, debug="--debug" in argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return EXIT_INTERRUPTED
    return 0


def _explain(error: Exception, *, debug: bool) -> int:
    """Print an error as one or two lines and return its exit code; a closed pipe is silent."""
    from rankscope.store.errors import TraceError

    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, BrokenPipeError):
        return 0
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, CommandProblem):
        return _say(*_usage_lines(error), code=EXIT_USAGE)
    if isinstance(error, typer.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, TraceError):
        hint = "" if error.exit_code != EXIT_INTERNAL or error.hint or debug else f"\n  {_DEFECT}"
        return _say(*f"{_harmless(error)}{hint}".splitlines(), code=error.exit_code)
    if isinstance(error, OSError):
        return _say(_os_text(error), code=EXIT_INPUT)
    if type(error).__module__.partition(".")[0] in STORAGE_PACKAGES:
        return _say(f"the storage cannot be reached: {error}", f"  {_CREDENTIALS}", code=EXIT_INPUT)
    what = f"internal error: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return _say(what if debug else f"{what}\n  {_DEFECT}", code=EXIT_INTERNAL)


def _harmless(error: Any) -> Any:
    """The same error with its parts fit for a terminal: names of files and of events are untrusted."""
    message, path, hint = (
        text.clean(part) if part else part for part in (error.message, error.path, error.hint)
    )
    return type(error)(message, path=path, hint=hint, offset=error.offset)


_CREDENTIALS = "Check the URL, your credentials and the connection."
_DEFECT = "This is a defect of rankscope: repeat the command with --debug and report what it prints."


def _usage_lines(error: Any) -> list[str]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROG
    return [error.format_message().replace("Value error, ", ""), f"  See `{path} --help`."]


def _os_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _say(*lines: str, code: int) -> int:
    shown = "\n".join(text.clean(line) for line in lines)
    typer.echo(f"{PROG}: error: {shown}", err=True)
    return code


def _make_output_safe() -> None:
    """Names in traces may hold characters the terminal's encoding lacks: print them escaped, never fail."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`): there is nobody to tell anything
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - lives on
        stream = getattr(sys, name)
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def _flush_or_silence() -> None:
    """Flush what is left; when the reader of the pipe has gone, point stdout away so that exiting stays silent."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
