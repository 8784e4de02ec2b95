from __future__ import annotations

import pytest

from rankscope.ingest.phases import iteration


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_2(14721)_generation_0(0)", "prefill"),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_64(64)", "decode"),
        ("execute_context_1(512)_generation_3(3)", "mixed"),
        ("execute_context_0(0)_generation_0(0)", None),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)", "decode"),
        ("execute_15360_context_15(sq15360sk15360sqsq1sqsk1)_generation_0(sq0sk0sqsq0sqsk0)", "prefill"),
        ("execute_new_3_cached_0", "prefill"),
        ("execute_new_0_cached_12", "decode"),
        ("execute_new_1_cached_12", "mixed"),
        ("step[EXTEND bs=2 toks=14721]", "prefill"),
        ("step[DECODE bs=64]", "decode"),
        ("step[MIXED bs=9 toks=80]", "mixed"),
        ("step[TARGET_VERIFY bs=4]", "decode"),
        ("step[IDLE bs=0]", None),
        ("prefill[bs=2 tok=100]", "prefill"),
        ("decode[bs=117/128 tok=117]", "decode"),
        ("[Executor] _forward_step 7: 2 ctx reqs, 30 gen reqs", "mixed"),
        ("execute_diffusion_1_256x256", None),
    ],
)
def test_iterations_of_inference_engines_tell_their_phase(name: str, phase: str | None) -> None:
    found = iteration(name)
    assert found is not None
    assert found.phase == phase


@pytest.mark.parametrize(
    "name",
    ["capture_32_DECODE", "## decoder fp8 None ##", "ProfilerStep#3", "decode", "prefill_batch", "step", ""],
)
def test_other_annotations_are_no_iterations(name: str) -> None:
    assert iteration(name) is None
