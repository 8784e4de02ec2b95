"""Kernel names as people say them, and two names on one line."""

from __future__ import annotations

import pytest

from rankscope.cli.kernel_names import short_kernel
from rankscope.cli.table import Pair

BINARY = "at::native::BinaryFunctor<float, float, at::native::binary_internal::MulFunctor<float> >"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            f"void at::native::vectorized_elementwise_kernel<4, {BINARY}, std::array<char*, 3ul> >(int, {BINARY})",
            "vectorized_elementwise_kernel<MulFunctor>",
        ),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, ncclWork*)", "ncclDevKernel_AllReduce_Sum_f16_RING_LL"),
        ("void (anonymous namespace)::softmax_warp<c10::Half, float, 11>(c10::Half*, int)", "softmax_warp"),
        ("void cutlass::Kernel2<cutlass_80_gemm_tn>(cutlass_80_gemm_tn::Params)", "cutlass_80_gemm_tn"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable)"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("Memset (Device)", "Memset (Device)"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("<<<<((((", "<<<<(((("),
        ("", ""),
        ("a::", "a::"),
    ],
)  # fmt: skip
def test_a_kernel_keeps_the_part_that_tells_what_it_does(name: str, short: str) -> None:
    assert short_kernel(name) == short


def test_a_short_name_leaves_its_room_to_the_other() -> None:
    assert Pair("a" * 30, "bb").fit(40) == f"{'a' * 30} -> bb"
    fitted = Pair("a" * 60, "bb").fit(40)
    assert len(fitted) == 40
    assert fitted.endswith(" -> bb")
    both = Pair("a" * 60, "b" * 60).fit(40)
    assert len(both) == 40
    assert both.count("...") == 2
