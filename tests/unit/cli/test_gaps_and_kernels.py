"""The screens of `gaps` and `kernels`."""

from __future__ import annotations

import builders_cli as build
import pyarrow as pa

from rankscope.cli import gaps, kernels
from rankscope.cli.table import render_blocks

START = 1_700_000_000_000_000_000


def test_a_gap_shows_when_how_long_why_and_what_stood_around_it() -> None:
    table = pa.Table.from_pylist(
        [
            build.gap_row(),
            build.gap_row(1, host_frame=None, previous_kernel=None, end_ns=START + 6 * build.MS),
        ]
    )
    text = render_blocks(gaps.screen(table, START), columns=80)
    assert "   0     3    5.0     12.0  host dispatch         8" in text
    assert "   1     3    5.0    1.000" in text
    around = "vectorized_elemen...nel<FillFunctor> -> ncclDevKernel_All..._Sum_f32_RING_LL"
    assert f"\n    in: aten::copy_\n    {around}\n" in text
    assert "\n    start of the window -> ncclDevKernel_AllReduce_Sum_f32_RING_LL" in text
    assert max(map(len, text.splitlines())) <= 80


def test_kernels_show_their_rule_and_what_was_left_out() -> None:
    table = pa.Table.from_pylist(
        [build.kernel_row("long<" + "x" * 300 + ">end"), build.kernel_row("b"), build.kernel_row("c")]
    )
    text = render_blocks(kernels.screen(table, 2), columns=80)
    assert "25.0%   30.0     10  3000.0  3000.0  4000.0  compute" in text
    assert ">end  [default]" in text
    assert "1 more name not shown" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "not shown" not in render_blocks(kernels.screen(table, 0), columns=80)


def test_an_empty_selection_is_said() -> None:
    empty = pa.Table.from_pylist([build.gap_row()]).slice(1)
    assert "No idle time" in render_blocks(gaps.screen(empty, 0), columns=80)
    assert "No device activity" in render_blocks(gaps.screen(empty, 0, has_device=False), columns=80)
    empty = pa.Table.from_pylist([build.kernel_row("x")]).slice(1)
    assert "No kernels" in render_blocks(kernels.screen(empty, 5), columns=80)
