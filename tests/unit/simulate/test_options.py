"""Options as a user types them, and what is said when they are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.simulate import preset_texts
from rankscope.simulate.disturb import SlowLink, Stall, duration, numbers
from rankscope.simulate.options import OPTIONS, config_from_options
from rankscope.store.errors import UsageError


def test_no_options_give_one_rank_and_text_is_as_good_as_numbers() -> None:
    assert config_from_options().layout.world == 1
    assert config_from_options(tp="2", dp=4, fsdp="yes").layout.world == 8
    assert config_from_options(tp=None, preset=None).layout.tp == 1


def test_sizes_that_follow_from_others_are_filled_in() -> None:
    assert config_from_options(pp=4).microbatches == 8
    assert config_from_options(pp=2, virtual_stages=2).schedule == "interleaved"
    assert config_from_options(pp=2, schedule="interleaved").virtual_stages == 2
    assert config_from_options(dp=4, ep=4).model.experts == 8
    assert config_from_options(pp=16).model.layers >= 16


def test_disturbances_are_read_from_text() -> None:
    d = config_from_options(
        tp=2, dp=4, gpus_per_host=4,
        slow_rank=["3:1.5", "1:2"], slow_link="0-1:4", data_stall="1,2@4-5:30ms", gc_pause="all@all:500us",
        clock_offset="1:-350", host_bound="2", missing_ranks="6-7", truncate="0", jitter="0.05",
    ).disturbances  # fmt: skip
    assert d.slow_ranks == ((3, 1.5), (1, 2.0))
    assert d.slow_links == (SlowLink(4.0, hosts=(0, 1)),)
    assert d.data_stalls == (Stall((1, 2), (4, 5), 30_000_000),)
    assert d.gc_pauses == (Stall((), (), 500_000),)
    assert d.clock_offsets == ((1, -350_000),)
    assert d.host_factor(5) == 2.0
    assert d.missing_ranks == (6, 7)
    assert d.truncated == ((0, 0.6),)
    assert d.compute_factor(3) == 1.5 and d.compute_factor(0) == 1.0


def test_a_slow_link_acts_on_a_role_a_group_or_a_pair_of_hosts() -> None:
    d = config_from_options(dp=4, tp=2, gpus_per_host=4, slow_link=["tp#1:2", "0-1:3"]).disturbances
    assert d.link_factor("TP", 1, frozenset({0})) == 2.0
    assert d.link_factor("TP", 0, frozenset({0})) == 1.0
    assert d.link_factor("DP", 0, frozenset({0, 1})) == 3.0


def test_numbers_and_durations() -> None:
    assert numbers("0-2,5", what="x") == (0, 1, 2, 5)
    assert [duration(t, what="x") for t in ("5", "5us", "1.5ms", "-2s", "7ns")] == [
        5_000_000, 5_000, 1_500_000, -2_000_000_000, 7,
    ]  # fmt: skip


WRONG: list[dict[str, Any]] = [
    {"tp": "two"},
    {"tp": 0},
    {"tp": 3},
    {"colour": "red"},
    {"preset": "nothing"},
    {"schedule": "zigzag"},
    {"detail": "all"},
    {"virtual_stages": 2, "pp": 2, "schedule": "1f1b"},
    {"schedule": "interleaved"},
    {"schedule": "interleaved", "pp": 2, "microbatches": 3},
    {"pp": 4, "layers": 2},
    {"dp": 3, "ep": 2},
    {"dp": 2, "ep": 2, "experts": 3},
    {"dp": 2, "ep": 2, "fsdp": True},
    {"seq": 100, "cp": 3},
    {"hidden": 100, "heads": 16},
    {"steps": 0},
    {"slow_rank": "9:2"},
    {"slow_rank": "0"},
    {"slow_rank": "0:fast"},
    {"slow_rank": "0:-1"},
    {"slow_link": "xx:2"},
    {"slow_link": "0-4:2"},
    {"data_stall": "0:5ms"},
    {"data_stall": "0@3:-5ms"},
    {"data_stall": "0@3:long"},
    {"clock_offset": "7:1us"},
    {"clock_offset": "350us"},
    {"jitter": 2},
    {"jitter": "much"},
    {"missing_ranks": "0"},
    {"truncate": "0:0"},
    {"truncate": "5"},
    {"compress": "zip"},
    {"fsdp": "maybe"},
    {"group_names": "funny"},
    {"peak_tflops": -1},
]


@pytest.mark.parametrize("options", WRONG, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_a_wrong_option_is_a_usage_error_with_a_hint(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        config_from_options(**options)
    assert caught.value.hint and caught.value.exit_code == 2


def test_every_option_and_preset_is_described() -> None:
    assert all(OPTIONS.values())
    assert all(preset_texts().values())
    for name in preset_texts():
        assert config_from_options(preset=name).name == name
