"""`rankscope simulate`: traces of a run that never was, with the truth beside them.

Its options are those of `rankscope.simulate.options.OPTIONS`, so their meanings are written once. They are
loaded only when the command is used.
"""

from __future__ import annotations

import shlex
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import text
from .options import DEBUG, with_parameters

if TYPE_CHECKING:
    from rankscope.simulate.run import SimulationResult

QUESTION = "What would a run of this shape look like, with the answers known?"
FLAGS = frozenset({"fsdp", "sequence_parallel", "missing_seq"})
REPEATED = frozenset(
    {
        "slow_rank",
        "slow_link",
        "data_stall",
        "gc_pause",
        "checkpoint",
        "host_bound",
        "clock_offset",
        "missing_ranks",
        "truncate",
    }
)
TEXTS = frozenset({"preset", "schedule", "gpu", "detail", "group_names", "compress"})
CHOICES = frozenset({"schedule", "detail", "group_names", "compress"})
"""Options whose meaning begins with a value, which stays as it is typed."""
FRACTIONS = frozenset({"peak_tflops", "jitter", "drop_launches"})


def simulate(out: str, **options: Any) -> None:
    """Simulate a training run and write its traces and the true answers.

    Writes a trace per rank that looks like PyTorch's, and truth.json with the exact answers from the
    simulator's own state. The same options give the same bytes. Disturbances (a slow rank or link, stalls,
    clock offsets, damage to the files) show what such a run looks like.
    """
    from rankscope.simulate import run_simulation

    given = {name: value for name, value in options.items() if value not in (None, False, [], ())}
    typer.echo("\n".join(report(run_simulation(out, **given), out)))


def command() -> Any:
    """The function with one typed option per option of the simulator, for Typer."""
    from rankscope.simulate import preset_texts
    from rankscope.simulate.options import OPTIONS

    place = typer.Option("--output", "-o", metavar="DIR", help="Folder for the traces and truth.json.")
    found = [Parameter("out", Parameter.KEYWORD_ONLY, annotation=Annotated[str, place])]
    for name, meaning in OPTIONS.items():
        first = meaning[0] if name in CHOICES else meaning[0].upper()
        sentence = f"{first}{meaning[1:]}."
        if name == "preset":
            sentence = f"{sentence} One of: {', '.join(preset_texts())}."
        option = typer.Option(f"--{name.replace('_', '-')}", help=sentence, show_default=False)
        kind: Any = _kind(name)
        default = False if kind is bool else None
        annotation: Any = Annotated[kind if kind is bool else kind | None, option]
        found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    found.append(Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, DEBUG]))

    def body(*, out: str, debug: bool, **options: Any) -> None:
        del debug  # seen by the outermost frame
        simulate(out, **options)

    body.__doc__ = simulate.__doc__
    return with_parameters(body, found)


def _kind(name: str) -> Any:
    if name in FLAGS:
        return bool
    if name in REPEATED:
        return list[str]
    if name in TEXTS:
        return str
    return float if name in FRACTIONS else int


def report(result: SimulationResult, out: str) -> list[str]:
    """What was written, and the next command."""
    lines = [
        f"wrote {out}: {text.count(len(result.files), 'trace')} and {result.truth.name}",
        f"  {text.count(result.world, 'rank')}, {text.count(result.steps, 'step')} of {text.ms(result.mean_step_ns)} ms",
    ]
    for finding in result.findings:
        where = f" on rank {text.ranges(finding['ranks'])}" if finding.get("ranks") else ""
        cost = finding.get("cost_ns")
        price = f": costs {text.ms(cost)} ms a rank" if cost else ""
        lines.append(f"  injected {finding['code'].replace('_', ' ')}{where}{price}")
    return [*lines, f"next: rankscope {shlex.quote(out)}"]
