"""What the user states about a run, and what happens when it is wrong."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from builders_identity import by_rel, codes, planned, seen

from rankscope.ingest.facts import RunFacts, contradictions, load_facts, world_product
from rankscope.store.errors import UnreadableFile, UsageError

TOML = """
step_time_ms = 812.5
hosts = ["node0", "node1"]

[parallel]
tp = 4
pp = 2
order = "tp-cp-ep-dp-pp"
gpus_per_host = 4

[pipeline]
schedule = "1f1b"
microbatches = 8
virtual_stages = 2

[model]
hidden = 4096
kv_heads = 8
dtype = "bf16"
"""


def test_run_toml_is_read_with_sections(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(TOML)
    facts = load_facts(str(path))
    assert facts == RunFacts(
        tp=4,
        pp=2,
        order="tp-cp-ep-dp-pp",
        gpus_per_host=4,
        schedule="1f1b",
        microbatches=8,
        virtual_stages=2,
        hidden=4096,
        kv_heads=8,
        dtype="bf16",
        step_time_ms=812.5,
        hosts=("node0", "node1"),
    )
    assert facts.stated()["tp"] == 4
    assert "dp" not in facts.stated()


def test_settings_win_over_the_file_and_are_typed(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("tp = 4\npp = 2\n")
    facts = load_facts(
        str(path),
        [
            "parallel.tp=8",
            "schedule=1f1b",
            'dtype="bf16"',
            "step_time_ms=3",
            "model.kv-heads = 2",
            "virtual_stages=2",
        ],
    )
    assert (facts.tp, facts.pp, facts.schedule, facts.dtype, facts.step_time_ms, facts.kv_heads) == (
        8,
        2,
        "1f1b",
        "bf16",
        3.0,
        2,
    )


def test_hosts_as_list_table_or_one_by_one() -> None:
    assert load_facts(sets=['hosts=["a", "b"]']).hosts == ("a", "b")
    assert load_facts(sets=['hosts={0 = "a", 8 = "b"}']).host_of == ((0, "a"), (8, "b"))
    assert load_facts(sets=["hosts.8=b", "hosts.0=a"]).host_of == ((0, "a"), (8, "b"))


def test_facts_behind_a_url_and_none_at_all() -> None:
    fsspec.filesystem("memory").pipe("/facts/run.toml", b"tp = 2")
    assert load_facts("memory://facts/run.toml").tp == 2
    assert load_facts() == RunFacts()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("tpp=4", "unknown fact 'tpp'", "'tp'"),
        ("model.hiden=1", "unknown fact 'model.hiden'", "'model.hidden'"),
        ("parallel.hidden=1", "unknown fact 'parallel.hidden'", "parallel."),
        ("microbatch=4", "unknown fact 'microbatch'", "'microbatches'"),
        ("tp=four", "whole number", None),
        ("tp=0", "at least 1", None),
        ("tp=true", "whole number", None),
        ("tp=2.5", "whole number", None),
        ("tp=99999999999", "whole number", None),
        ("step_time_ms=-1", "positive number", None),
        ("step_time_ms=inf", "positive number", None),
        ("schedule=3", "must be text", None),
        ("order=tp-xx", "unknown dimension 'xx'", "tp, cp, ep"),
        ("order=tp-dp-tp", "twice", None),
        ("hosts=3", "hosts must be", None),
        ("hosts.x=a", "hosts must be", None),
        ("tp", "expected key=value", "--set"),
        ("a.b.c=1", "unknown fact", None),
    ],
)
def test_wrong_settings_are_usage_errors(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as error:
        load_facts(sets=[text])
    assert error.value.exit_code == 2
    assert message in str(error.value)
    assert hint is None or hint in str(error.value)


def test_wrong_files_are_usage_errors(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for content, message in (
        (b"tp = ", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"[modell]\nx = 1", "'modell'"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=message):
            load_facts(str(path))
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(UsageError, match="larger than"):
        load_facts(str(path))
    with pytest.raises(UnreadableFile):
        load_facts(str(tmp_path / "gone.toml"))


def test_product_counts_the_dimensions_that_multiply() -> None:
    assert world_product(RunFacts(tp=2, pp=4, dp=2, fsdp=2, cp=1, ep=8)) == 32
    assert world_product(RunFacts(ep=8)) is None


def test_contradicting_sizes_are_said() -> None:
    assert contradictions(RunFacts(tp=2, pp=2), 8, {}) == []
    assert contradictions(RunFacts(tp=2, pp=2, dp=2), 8, {}) == []
    assert contradictions(RunFacts(tp=3), None, {}) == []
    for facts in (
        RunFacts(tp=3),
        RunFacts(tp=2, dp=2),
        RunFacts(tp=16),
        RunFacts(world_size=4),
        RunFacts(ep=3),
    ):
        (row,) = contradictions(facts, 8, {})
        assert (row.code, row.severity) == ("fact_contradicted", "warning")
    assert (
        "tp=2 dp=2 gives 4 ranks, the traces say 8" in contradictions(RunFacts(tp=2, dp=2), 8, {})[0].example
    )


def test_contradicting_hosts_are_said() -> None:
    assert contradictions(RunFacts(host_of=((0, "a"),)), 2, {0: "a", 1: "z"}) == []
    assert len(contradictions(RunFacts(host_of=((0, "a"),)), 2, {0: "b"})) == 1
    assert len(contradictions(RunFacts(hosts=("a", "b")), 2, {0: "b", 1: "c"})) == 1


def test_facts_give_coordinates_hosts_and_local_ranks_to_the_plan() -> None:
    facts = RunFacts(tp=2, pp=2, hosts=("n0", "n1"), gpus_per_host=4)
    result = by_rel(planned({f"rank{r}.json": seen(rank=r, world_size=8) for r in (0, 5)}, facts))
    five = result["rank5.json"]
    # 5 = tp1 + 2*dp0 + 4*pp1
    assert (five.coords, five.host, five.local_rank) == ("tp1.pp1.dp0", "n1", 1)


def test_contradicted_sizes_give_no_coordinates() -> None:
    result = planned({"rank0.json": seen(rank=0, world_size=8)}, RunFacts(tp=3))
    assert result.sources[0].coords is None
    assert codes(result)["fact_contradicted"] == "warning"


def test_stated_world_size_names_missing_ranks_where_the_trace_is_silent() -> None:
    result = planned({"rank0.json": seen()}, RunFacts(world_size=4))
    assert next(q for q in result.quality if q.code == "rank_missing").count == 3
