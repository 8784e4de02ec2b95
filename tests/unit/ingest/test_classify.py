from __future__ import annotations

import numpy as np
import pytest

from rankscope.ingest.classify import (
    EVIDENCE,
    KERNEL,
    MEMCPY,
    MEMSET,
    Rules,
    classify,
    copy_kind,
    decide,
)
from rankscope.ingest.columns import Text
from rankscope.store.errors import UsageError

RULES = Rules.load()
RECORD = EVIDENCE.index("metadata:inside record_param_comms")
OWN = EVIDENCE.index("metadata:collective_name")

COMM = [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", None, "all_reduce"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", None, "send_recv"),
    (
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        None,
        "reduce_scatter",
    ),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None, "all_gather"),
    ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", None, "broadcast"),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None, None),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None, None),
    ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs)", None, "all_reduce"),
    ("ncclSymkKernel_ReduceScatter_LL", None, "reduce_scatter"),
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", None, "all_reduce"),
    ("rcclGenericKernel(ncclDevComm*)", None, None),
    ("mscclKernel_Sum_half_Simple_Sum_half(ncclDevComm*, mscclAlgo*)", None, None),
    ("void mscclpp::collective::allreduceNvls<float>(mscclpp::DeviceHandle)", None, None),
    ("void dpsk::ep::internode::dispatch<false, 8, false, 1>(int)", "EP", "dispatch"),
    ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int)", "EP", "combine"),
    ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", "EP", "dispatch"),
    ("void dpsk::ep::internode::notify_dispatch<false, 4>(int const*)", "EP", "notify"),
    ("void deep_ep::internode::cached_notify<false, 32>(int)", "EP", "notify"),
    ("void deep_ep::layout::get_dispatch_layout<256, 32, 2>(long const*)", "EP", "layout"),
    ("void hybrid_ep::dispatch_kernel<int>(int)", "EP", "dispatch"),
    ("hybrid_ep::device_sync_kernel(unsigned int*)", "EP", "barrier"),
    ("void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<8>(int)", "EP", "dispatch"),
    ("void tensorrt_llm::kernels::moe_alltoall::moeA2ACombineKernel<float>(int)", "EP", "combine"),
    ("nvshmemi_transfer_rma<NVSHMEMI_THREADGROUP>(int)", None, None),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "TP", "all_reduce"),
    ("void sglang::cross_device_reduce_2stage<half, 4>(sglang::RankData*)", "TP", "all_reduce"),
    ("void quickreduce::allreduce_prototype_twoshot<quickreduce::CodecFP>(int)", "TP", "all_reduce"),
    ("void aiter::allreduce_fusion_kernel_1stage<bf16, 8>(aiter::RankData*)", "TP", "all_reduce"),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float>(int)",
        "TP",
        "all_reduce",
    ),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)", "TP", "all_reduce"),
    ("void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(int)", "TP", "all_reduce"),
    ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)", None, "all_reduce"),
    ("void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**)", None, "all_reduce"),
    (
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16>(float**)",
        None,
        "all_reduce",
    ),
    ("void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)", None, "all_gather"),
    ("_mxfp8_all_to_all_expert_major_kernel", "EP", "dispatch"),
    ("_combine_all_to_all_kernel", "EP", "combine"),
    ("void userbuffers_fp16_sum_inplace_gpu_rw<8>(int)", "TP", None),
    ("kuserbuffers_pushsend(int*)", "TP", None),
    ("oneccl_allreduce_pcie_sum_f32", None, None),
    ("hcom_allReduce__123", None, None),
    ("hccl:allgather", None, None),
]

COMPUTE = [
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
    "void at::native::elementwise_kernel_manual_unroll<type_specialized_broadcast_kernel_launcher<1>>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
    "triton_poi_fused_add_all_reduce_wait_tensor_3",
    "triton_red_fused__to_copy_all_gather_into_tensor_2",
    "hipify_scale_kernel(float*)",
    "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16EEv",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>(int)",
    "_Z28kn_fmla_fwd_splictkv_combineI19FlashMlaKernelTrait",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>>(int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
    "reduce_kernel",
]


@pytest.mark.parametrize(("name", "role", "operation"), COMM)
def test_every_known_communication_kernel_is_comm_with_its_role_and_operation(
    name: str, role: str | None, operation: str | None
) -> None:
    verdict = decide(KERNEL, name, kind=None, evidence=0, rules=RULES)
    assert (verdict.klass, verdict.role, verdict.operation) == ("comm", role, operation)
    assert verdict.rule.startswith("name:")


@pytest.mark.parametrize("name", COMPUTE)
def test_kernels_that_only_sound_like_communication_are_compute(name: str) -> None:
    assert decide(KERNEL, name, kind=None, evidence=0, rules=RULES).klass == "compute"


def test_metadata_makes_an_unknown_name_communication_and_says_so() -> None:
    verdict = decide(KERNEL, "someone_elses_kernel", kind=None, evidence=RECORD, rules=RULES)
    assert (verdict.klass, verdict.rule) == ("comm", "metadata:inside record_param_comms")
    verdict = decide(KERNEL, COMM[0][0], kind=None, evidence=OWN, rules=RULES)
    assert (verdict.klass, verdict.rule, verdict.operation) == (
        "comm",
        "metadata:collective_name",
        "all_reduce",
    )


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 64, 64>(float*)",
        "flatten_kernel",
        "cast_to_half_kernel",
        "my_copy_kernel",
        "concat_kernel",
        "sm80_xmma_gemm_f16f16",
    ],
)
def test_copies_casts_and_products_inside_a_collective_call_stay_compute(name: str) -> None:
    verdict = decide(KERNEL, name, kind=None, evidence=RECORD, rules=RULES)
    assert verdict.klass == "compute"
    assert verdict.rule.startswith("name:")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("__amd_rocclr_copyBuffer.kd", None),
        ("__amd_rocclr_fillBufferAligned.kd", "memset"),
        ("MEMORY_COPY_HOST_TO_DEVICE", "h2d"),
        ("MEMORY_COPY_DEVICE_TO_HOST", "d2h"),
        ("MEMORY_COPY_DEVICE_TO_DEVICE", "d2d"),
    ],
)
def test_copies_that_rocm_records_as_kernels_are_memcpy(name: str, kind: str | None) -> None:
    verdict = decide(KERNEL, name, kind=None, evidence=RECORD, rules=RULES)
    assert (verdict.klass, verdict.copy_kind) == ("memcpy", kind)


def test_peer_copies_are_communication_only_under_a_communication_call() -> None:
    name = "Memcpy PtoP (Device -> Device)"
    alone = decide(MEMCPY, name, kind=None, evidence=0, rules=RULES)
    within = decide(MEMCPY, name, kind=None, evidence=RECORD, rules=RULES)
    assert (alone.klass, alone.copy_kind, alone.rule) == ("memcpy", "p2p", "category:gpu_memcpy")
    assert (within.klass, within.copy_kind) == ("comm", "p2p")
    local = decide(MEMCPY, "Memcpy DtoD (Device -> Device)", kind=None, evidence=RECORD, rules=RULES)
    assert (local.klass, local.copy_kind) == ("memcpy", "d2d")


def test_memsets_are_memcpy_of_kind_memset() -> None:
    verdict = decide(MEMSET, "Memset (Unknown)", kind=None, evidence=0, rules=RULES)
    assert (verdict.klass, verdict.copy_kind, verdict.rule) == ("memcpy", "memset", "category:gpu_memset")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("Memcpy HtoH (Pageable -> Pinned)", "h2h"),
        ("CopyHostToDevice", "h2d"),
        ("hipMemcpyDeviceToHost", "d2h"),
        ("Memcpy (Unknown)", None),
        ("", None),
    ],
)
def test_the_direction_of_a_copy_is_read_from_its_name(text: str, kind: str | None) -> None:
    assert copy_kind(text) == kind


def test_the_kind_argument_tells_the_direction_when_the_name_does_not() -> None:
    assert decide(MEMCPY, "Memcpy", kind="DtoH", evidence=0, rules=RULES).copy_kind == "d2h"


def test_each_distinct_name_is_decided_once_and_undecided_lookalikes_are_counted() -> None:
    names = Text(np.array([0, 1, 0, 1, 2], np.int32), ("gemm_a", "my_allgather_v2", NCCL_LIKE))
    zero = np.zeros(5, np.int32)
    classes = classify(zero, names, kinds=Text(zero - 1, ()), evidence=zero, rules=RULES)
    assert len(classes.verdicts) == 3
    assert classes.unclassified == (("my_allgather_v2", 2),)
    klass = classes.text("klass")
    assert [klass.values[c] for c in klass.codes] == ["compute", "compute", "compute", "compute", "comm"]
    assert classes.is_class(classes.verdicts[2].klass).tolist() == [False, False, False, False, True]


NCCL_LIKE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

USER = """
[[rule]]
id = "ours"
pattern = 'my_allgather'
class = "comm"
role = "FSDP"
operation = "all_gather"
description = "our own"

[[rule]]
id = "nccl_dev_kernel"
pattern = '^ncclDevKernel_'
class = "compute"
"""


def test_user_rules_stand_in_front_and_replace_by_id() -> None:
    rules = Rules.load([USER])
    mine = decide(KERNEL, "my_allgather_v2", kind=None, evidence=0, rules=rules)
    assert (mine.klass, mine.role, mine.operation, mine.rule) == ("comm", "FSDP", "all_gather", "name:ours")
    assert decide(KERNEL, NCCL_LIKE, kind=None, evidence=OWN, rules=rules).klass == "compute"
    assert sum(r.id == "nccl_dev_kernel" for r in rules.rules) == 1
    assert len(rules.rules) == len(RULES.rules) + 1


def test_a_user_rule_decides_copies_too() -> None:
    text = '[[rule]]\nid = "peer"\npattern = "PtoP"\nclass = "comm"\nrole = "PP"\n'
    verdict = decide(MEMCPY, "Memcpy PtoP", kind=None, evidence=0, rules=Rules.load([text]))
    assert (verdict.klass, verdict.role) == ("comm", "PP")


@pytest.mark.parametrize(
    "text",
    [
        "rule = 3",
        "not toml",
        '[[rule]]\nid = "a"\nclass = "comm"\n',
        '[[rule]]\nid = "a"\npattern = "("\nclass = "comm"\n',
        '[[rule]]\nid = "a"\npattern = "x"\nclass = "bubbles"\n',
        '[[rule]]\nid = "a"\npattern = "x"\nclass = "memcpy"\ncopy_kind = "sideways"\n',
        '[[rule]]\nid = "a"\npattern = "x"\nclass = "comm"\ncolour = "red"\n',
        '[[rule]]\nid = "a"\npattern = 3\nclass = "comm"\n',
    ],
)
def test_a_wrong_rule_file_is_a_usage_error_that_says_where(text: str) -> None:
    with pytest.raises(UsageError, match="rules file 1"):
        Rules.load([text])


def test_every_shipped_rule_has_a_description_and_a_unique_id() -> None:
    ids = [r.id for r in RULES.rules]
    assert len(set(ids)) == len(ids)
    assert all(r.description for r in RULES.rules)
