"""Who waits for whom: tiny programs worked out by hand, and properties of larger ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders_sim import TINY, ideal, run_in_memory

from rankscope.simulate.costs import bus_factor, message_ns
from rankscope.simulate.disturb import Disturbances
from rankscope.simulate.groups import build_groups
from rankscope.simulate.model import Hardware, Layout, Link, SimulationConfig
from rankscope.store.schema import PARTS

ROLES = ("TP", "CP", "EP", "DP", "FSDP", "PP", "other")


def test_two_ranks_and_one_all_reduce() -> None:
    # given: 4 us forward, 8 us backward on rank 0, twice that on rank 1; one all-reduce of alpha = 10 us
    config = ideal(
        Layout(dp=2),
        hardware=replace(ideal(Layout()).hardware, intra=Link(10_000, float("inf"))),
        disturbances=Disturbances(slow_ranks=((1, 2.0),)),
    )
    # when
    sink, _ = run_in_memory(config)
    # then: arrivals 12 and 24 us, both end at 34; rank 0 waits 12
    (call,) = sink.concluded
    assert [(m.rank, m.start_ns, m.end_ns, m.wait_ns) for m in call.members] == [
        (0, 12_000, 34_000, 12_000),
        (1, 24_000, 34_000, 0),
    ]
    by_rank = {rank: step.sums for rank, step, _ in sink.windows}
    assert by_rank[0]["straggler_wait_ns"] == 12_000
    assert by_rank[0]["transfer_ns"] == by_rank[1]["transfer_ns"] == 10_000
    assert by_rank[1]["straggler_wait_ns"] == 0
    assert by_rank[0]["compute_only_ns"] == 12_000


def test_a_receive_waits_for_its_sender_and_a_send_for_its_receiver() -> None:
    # given: two stages, one microbatch, F = 4, B = 8, a message costs 1 us
    hardware = replace(ideal(Layout()).hardware, intra=Link(1_000, float("inf")))
    sink, _ = run_in_memory(ideal(Layout(pp=2), microbatches=1, hardware=hardware))
    # then: stage 1 waits 4 us for the activation; its backward ends at 4+1+4+8 = 17 and stage 0 has waited
    # for the gradient from 4 (its receive follows the forward) to 17
    calls = {c.members[0].comm.lane: c for c in sink.concluded}
    forward = {m.comm.op: (m.rank, m.start_ns, m.end_ns, m.wait_ns) for m in calls["F"].members}
    assert forward == {"send": (0, 4_000, 5_000, 0), "recv": (1, 0, 5_000, 4_000)}
    backward = {m.comm.op: (m.rank, m.start_ns, m.end_ns, m.wait_ns) for m in calls["B"].members}
    assert backward == {"send": (1, 17_000, 18_000, 0), "recv": (0, 4_000, 18_000, 13_000)}


def test_a_buffered_send_does_not_wait_for_a_late_receiver() -> None:
    def send_of(p2p_buffer_bytes: int) -> tuple[int, int, int]:
        config = ideal(
            Layout(pp=2),
            microbatches=2,
            p2p_buffer_bytes=p2p_buffer_bytes,
            disturbances=Disturbances(slow_ranks=((1, 3.0),)),
        )
        sink, _ = run_in_memory(config)
        ops = [m for c in sink.concluded for m in c.members if m.comm.op == "send" and m.comm.lane == "F"]
        second = sorted(ops, key=lambda m: m.start_ns)[1]
        return second.start_ns, second.end_ns, second.wait_ns

    # stage 1: F0 from 4 to 16, B0 from 16 to 40; its second receive starts at 40 (1F1B on the last stage)
    assert send_of(0) == (8_000, 40_000, 32_000)
    assert send_of(1 << 30) == (8_000, 8_000, 0)


SHAPES = {
    "tp": (Layout(tp=2), TINY, {}),
    "tp with sequence parallelism": (Layout(tp=2, sequence_parallel=True), TINY, {}),
    "dp": (Layout(dp=4), TINY, {}),
    "fsdp": (Layout(dp=4, fsdp=True), TINY, {}),
    "pp": (Layout(pp=4), TINY, {"microbatches": 8}),
    "gpipe": (Layout(pp=2), TINY, {"microbatches": 4, "schedule": "gpipe"}),
    "interleaved": (Layout(pp=2), TINY, {"microbatches": 4, "schedule": "interleaved", "virtual_stages": 2}),
    "3d": (Layout(tp=2, dp=2, pp=2), TINY, {"microbatches": 4}),
    "experts": (Layout(dp=4, ep=2), replace(TINY, experts=4), {}),
    "cp": (Layout(cp=4), TINY, {}),
    "everything": (Layout(tp=2, cp=2, dp=2, pp=2, ep=2), replace(TINY, experts=4), {"microbatches": 2}),
    "fsdp and pipeline": (Layout(dp=2, pp=2, fsdp=True), TINY, {"microbatches": 2}),
}


def _config(name: str, **more: object) -> SimulationConfig:
    layout, model, fields = SHAPES[name]
    base = SimulationConfig(layout=layout, model=model, steps=3, hardware=Hardware(gpus_per_host=4))
    return replace(base, **{**fields, **more}).validated()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_parts_sum_to_the_window_and_windows_tile_the_rank(name: str) -> None:
    sink, ops = run_in_memory(_config(name, disturbances=Disturbances(jitter=0.05)))
    last: dict[int, int] = {}
    for rank, step, end in sink.windows:
        s, start = step.sums, step.start_ns
        assert start is not None
        assert sum(s[c] for c in PARTS) == end - start
        assert s["exposed_comm_ns"] == s["transfer_ns"] + s["pipeline_wait_ns"] + s["straggler_wait_ns"]
        assert s["compute_ns"] == s["compute_only_ns"] + s["overlap_ns"]
        assert s["communication_ns"] == s["exposed_comm_ns"] + s["overlap_ns"]
        assert sum(s[f"{r}.exposed_comm_ns"] for r in ROLES) == s["exposed_comm_ns"]
        assert last.get(rank, start) == start
        last[rank] = end
    assert len(sink.windows) == 3 * len(last)
    assert all(end >= max(op.end_ns for op in ops if op.rank == r) for r, end in last.items())


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_nobody_leaves_a_collective_before_the_last_has_come(name: str) -> None:
    sink, _ = run_in_memory(_config(name, end_spread_ns=500))
    assert sink.concluded
    for call in sink.concluded:
        last = max(m.start_ns for m in call.members)
        assert all(m.end_ns >= last + call.transfer_ns for m in call.members)
        assert min(m.wait_ns for m in call.members) == 0


@pytest.mark.parametrize("name", ["3d", "experts"])
def test_streams_run_one_activity_after_another_and_never_before_its_launch(name: str) -> None:
    _, ops = run_in_memory(_config(name))
    free: dict[object, int] = {}
    for op in ops:
        assert op.start_ns > op.launch_ns
        assert op.start_ns >= free.get(op.stream, 0)
        free[op.stream] = op.end_ns


def test_the_result_does_not_depend_on_how_far_ranks_run_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[tuple[int, int, int | None, int, dict[str, int]]]:
        sink, _ = run_in_memory(_config("everything", disturbances=Disturbances(jitter=0.1)))
        return sorted((r, s.number, s.start_ns, e, dict(s.sums)) for r, s, e in sink.windows)

    wide = rows()
    monkeypatch.setattr("rankscope.simulate.engine.RUN_AHEAD", 3)
    monkeypatch.setattr("rankscope.simulate.engine.REVIEW_EVERY", 5)
    assert rows() == wide


# volumes (METHOD 5): message bytes per rank and step


def _volume(config: SimulationConfig, role: str, op: str, rank: int = 0) -> tuple[int, int]:
    _, ops = run_in_memory(replace(config, steps=1, has_grad_norm=False))
    mine = [o for o in ops if o.rank == rank and o.role == role and o.comm and o.comm.op == op]
    return len(mine), sum(o.facts.nbytes for o in mine if o.facts)


def _params(config: SimulationConfig) -> int:
    m = config.model
    layer = m.hidden * (m.hidden + 2 * m.kv_hidden) + m.hidden**2 + 2 * m.hidden + 3 * m.hidden * m.ffn
    return m.layers * layer + 2 * m.vocab * m.hidden


def test_ddp_reduces_every_gradient_once() -> None:
    config = _config("dp")
    assert _volume(config, "DP", "all_reduce")[1] == 2 * _params(config)


def test_fsdp_gathers_parameters_twice_and_scatters_gradients_once() -> None:
    config = _config("fsdp")
    n_units = TINY.layers + 2
    assert _volume(config, "FSDP", "all_gather") == (2 * n_units, 2 * 2 * _params(config))
    assert _volume(config, "FSDP", "reduce_scatter") == (n_units, 2 * _params(config))


def test_tensor_parallelism_reduces_twice_a_layer_and_pass() -> None:
    config = _config("tp")
    bsh = TINY.tokens * TINY.hidden * 2
    n, total = _volume(config, "TP", "all_reduce")
    # four a layer, the embedding's, the head's input gradient, and three small ones of the loss
    assert n == 4 * TINY.layers + 5
    assert total == (4 * TINY.layers + 2) * bsh + 3 * TINY.tokens * 4


def test_sequence_parallelism_gathers_and_scatters() -> None:
    config = _config("tp with sequence parallelism")
    assert _volume(config, "TP", "all_gather")[0] == 6 * TINY.layers + 1
    assert _volume(config, "TP", "reduce_scatter")[0] == 4 * TINY.layers + 2


def test_a_pipeline_sends_activations_forward_and_gradients_back() -> None:
    config = _config("pp")
    bsh = TINY.tokens * TINY.hidden * 2
    assert _volume(config, "PP", "send", rank=0) == (8, 8 * bsh)
    assert _volume(config, "PP", "send", rank=1) == (16, 16 * bsh)
    assert _volume(config, "PP", "recv", rank=3) == (8, 8 * bsh)


def test_experts_exchange_tokens_twice_a_layer_and_pass() -> None:
    config = _config("experts")
    n, total = _volume(config, "EP", "all_to_all")
    routed = TINY.tokens * 2 * TINY.hidden * 2
    assert n == 4 * TINY.layers
    # dispatches send exactly the routed tokens, combines what was received
    assert total >= 2 * TINY.layers * routed


def test_a_context_ring_passes_keys_and_values_on() -> None:
    config = _config("cp")
    kv = 2 * (TINY.tokens // 4) * TINY.kv_hidden * 2
    assert _volume(config, "CP", "send") == (2 * 3 * TINY.layers, (1 + 2) * 3 * TINY.layers * kv)


def test_bus_factors_and_the_cost_of_a_message() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == 0.875
    # 1 GB at 100 GB/s, factor 1, and 5 us to begin with
    assert message_ns(Link(5_000, 100.0), "send", 2, 1_000_000_000) == 10_005_000


def test_groups_of_a_grid_are_lines_of_it() -> None:
    config = _config("everything")
    groups = {
        g.axis: [h.ranks for h in build_groups(config) if h.axis == g.axis] for g in build_groups(config)
    }
    assert groups["tp"][:2] == [(0, 1), (2, 3)]
    assert groups["cp"][0] == (0, 2)
    assert groups["dp_cp"][0] == (0, 2, 4, 6)
    assert groups["pp"][0] == (0, 8)
    assert groups["ep"][0] == (0, 4)
    names = [g.pg_name for g in build_groups(config)]
    assert len(set(names)) == len(names)
