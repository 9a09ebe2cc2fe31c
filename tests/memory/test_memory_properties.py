"""Laws of the memory projection over random legal configurations."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from architecture_cases import decoder
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import configured, deepseek_v2_lite, deepseek_v3, llama_70b, mixtral_8x7b, qwen3_30b_a3b, run

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import Recompute
from primus_mcp.projection.memory.caveats import memory_caveats
from primus_mcp.projection.memory.components import COMPONENTS
from primus_mcp.projection.memory.projection import MemoryProjection
from primus_mcp.projection.memory.verdict import verdict

WORLD = 64
ARCHITECTURES = [
    replace(llama_70b(16), name="dense"),
    mixtral_8x7b(8),
    replace(qwen3_30b_a3b(), num_layers=16, moe_layers=(True,) * 16),
    replace(deepseek_v2_lite(), num_layers=16, moe_layers=(False,) + (True,) * 15),
    decoder(8, 1024, 4096, 16, 4, 50257, 1024, gated_mlp=False, activation="gelu", normalization="LayerNorm", tied_embeddings=True),
]
RECOMPUTES = [
    Recompute(),
    Recompute(granularity="full", method="uniform", num_layers=1),
    Recompute(granularity="full", method="block", num_layers=1),
    Recompute(granularity="selective", modules=("core_attn",)),
    Recompute(granularity="selective", modules=("moe_act", "layernorm", "mla_up_proj")),
    Recompute(granularity="selective", modules=("mlp", "moe")),
]
SCHEDULES = [("1f1b", 1), ("interleaved", 2), ("zero-bubble", 1), ("zbv-formatted", 2), ("v-half", 2), ("v-min", 2)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Architecture, dict[str, Any]]:
    """A workload and a configuration that divide."""
    arch = draw(st.sampled_from(ARCHITECTURES))
    pp = draw(st.sampled_from([1, 2, 4]))
    schedule, vpp = draw(st.sampled_from(SCHEDULES)) if pp > 1 else ("1f1b", 1)
    tp = draw(st.sampled_from([1, 2, 4]))
    chosen: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "schedule": schedule,
        "cp": draw(st.sampled_from([1, 2])),
        "ep": draw(st.sampled_from([1, 2, 4])) if arch.is_moe else 1,
        "etp": tp if arch.is_moe and draw(st.booleans()) else 1,
        "mbs": draw(st.sampled_from([1, 2])),
        "sequence_parallel": tp > 1 and (arch.is_moe or draw(st.booleans())),
        "cp_comm_type": draw(st.sampled_from(["p2p", "a2a", "allgather"])),
        "fp8": draw(st.sampled_from([None, "hybrid"])),
        "recompute": draw(st.sampled_from(RECOMPUTES)) if schedule in ("1f1b", "interleaved") else Recompute(),
        "dispatcher": draw(st.sampled_from(["alltoall", "deepep"])),
        "sync_free_stage": draw(st.sampled_from([0, 1, 2, 3])),
        "cross_entropy_loss_fusion": draw(st.booleans()),
        "gradient_accumulation_fusion": draw(st.booleans()),
        "use_distributed_optimizer": draw(st.booleans()),
        "fused_swiglu": draw(st.booleans()),
    }
    return arch, chosen


def _project(arch: Architecture, chosen: dict[str, Any]) -> MemoryProjection:
    return run(arch, WORLD, 16, "amd", **chosen)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_components_are_known_positive_and_sum_to_the_device_and_the_three_figures_are_ordered(case: tuple[Architecture, Any]) -> None:
    for rank in _project(*case).ranks:
        assert sum(rank.components.values()) == rank.device_bytes
        assert set(rank.components) <= set(COMPONENTS)
        assert all(isfinite(size) and size > 0 for size in rank.components.values())
        assert 0 < rank.allocated_bytes <= rank.reserved_bytes <= rank.device_bytes <= rank.upper_bytes
        assert rank.allocated_bytes <= rank.least_bytes <= rank.device_bytes
        assert rank.peak_moment


@settings(max_examples=60, deadline=None)
@given(cases())
def test_memory_grows_with_the_micro_batch_and_with_the_sequence(case: tuple[Architecture, Any]) -> None:
    arch, chosen = case
    base = _project(arch, chosen)
    larger = _project(arch, {**chosen, "mbs": 2 * chosen["mbs"]})
    longer = _project(replace(arch, seq_length=2 * arch.seq_length), chosen)
    for small, big, long in zip(base.ranks, larger.ranks, longer.ranks, strict=True):
        assert small.device_bytes < big.device_bytes
        assert small.device_bytes < long.device_bytes


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(RECOMPUTES))
def test_recomputation_never_needs_more_memory(case: tuple[Architecture, Any], recompute: Recompute) -> None:
    arch, chosen = case
    if chosen["schedule"] not in ("1f1b", "interleaved"):
        chosen = {**chosen, "schedule": "1f1b", "vpp": 1}
    without = _project(arch, {**chosen, "recompute": Recompute()})
    with_it = _project(arch, {**chosen, "recompute": recompute})
    for more, less in zip(without.ranks, with_it.ranks, strict=True):
        assert less.allocated_bytes <= more.allocated_bytes


@settings(max_examples=40, deadline=None)
@given(cases())
def test_more_expert_load_never_needs_less(case: tuple[Architecture, Any]) -> None:
    arch, chosen = case
    balanced = _project(arch, chosen).device_bytes
    assert _project(arch, {**chosen, "expert_load_imbalance": 1.5}).device_bytes >= balanced


@settings(max_examples=40, deadline=None)
@given(cases())
def test_the_same_input_gives_the_same_answer(case: tuple[Architecture, Any]) -> None:
    assert _project(*case) == _project(*case)


def test_overlapping_the_expert_exchange_holds_one_chunk_more() -> None:
    chosen: dict[str, Any] = {"pp": 4, "vpp": 2, "ep": 8, "schedule": "interleaved", "forced_balance": True}
    plain, overlapped = (run(mixtral_8x7b(), WORLD, 16, overlap_moe_a2a=flag, **chosen).ranks for flag in (False, True))
    one_chunk = plain[0].components["saved_moe"] / 11  # rank 0 holds 2 * 3 + 4 + 1 chunks of 4 layers
    assert overlapped[0].components["saved_moe"] - plain[0].components["saved_moe"] > 0.9 * one_chunk


def test_the_v_placement_puts_embedding_and_head_on_the_first_rank() -> None:
    chosen: dict[str, Any] = {"pp": 4, "vpp": 2, "tp": 8, "sequence_parallel": True}
    vee = run(llama_70b(), WORLD, 16, schedule="zbv-formatted", **chosen).ranks
    loop = run(llama_70b(), WORLD, 16, schedule="interleaved", **chosen).ranks
    matrix = 2 * 8192 * llama_70b().padded_vocab_size(8) // 8
    assert vee[0].components["weights"] == loop[0].components["weights"] + matrix + 2 * 8192
    assert vee[3].components["weights"] == loop[3].components["weights"] - matrix - 2 * 8192


def test_earlier_ranks_of_a_plain_pipeline_hold_more_activations() -> None:
    ranks = run(llama_70b(), WORLD, 16, tp=8, pp=4, sequence_parallel=True).ranks
    saved = [rank.components["saved_attention"] for rank in ranks]
    assert saved == sorted(saved, reverse=True)


def test_v_half_and_v_min_need_less_than_zbv_and_zbv_is_even() -> None:
    """Live units: ZBV PP on every rank, V-Half PP / 2 + 1, V-Min about PP / 3 + 1."""
    chosen: dict[str, Any] = {"pp": 8, "vpp": 2, "tp": 8, "sequence_parallel": True}
    by_name = {
        name: max(rank.activation_bytes for rank in run(llama_70b(), WORLD, 32, schedule=name, **chosen).ranks)
        for name in ("zbv-formatted", "v-half", "v-min")
    }
    assert by_name["v-min"] < by_name["v-half"] < by_name["zbv-formatted"]


def test_the_worst_rank_is_the_one_that_needs_most() -> None:
    projection = run(deepseek_v3(), 256, 16, "amd", pp=8, ep=32, pipeline_layout="Et*8|" + "t*8|" * 6 + "t*5L")
    assert projection.worst.device_bytes == max(rank.device_bytes for rank in projection.ranks) == projection.device_bytes
    assert projection.upper_bytes >= projection.worst.upper_bytes


def test_the_verdict_compares_estimate_and_upper_bound_with_usable_memory() -> None:
    assert verdict(90, 100, 100) == "fits"
    assert verdict(90, 101, 100) == "at_risk"
    assert verdict(101, 120, 100) == "does_not_fit"


def test_every_component_says_what_evidence_it_has() -> None:
    for component in COMPONENTS.values():
        assert component.evidence in ("counted", "measured", "fitted", "estimated")
        assert component.source
        assert component.text


def test_caveats_name_what_a_configuration_rests_on() -> None:
    arch = mixtral_8x7b()

    def codes(vendor: Vendor = "nvidia", **chosen: Any) -> set[str]:
        return {caveat.code for caveat in memory_caveats(arch, configured(64, **{"dispatcher": "deepep", "ep": 8, **chosen}), vendor)}

    assert codes(forced_balance=True) == set()
    assert codes() == {"expert_load_assumed"}
    assert codes(dispatcher="alltoall", ep=1) == set()
    assert codes("amd", forced_balance=True, fp8="hybrid") == {"runtime_outside_torch", "fp8_memory_untested"}
    assert codes(forced_balance=True, dispatcher="alltoall") == {"exchange_fragmentation_unknown"}
    assert codes(forced_balance=True, overlap_moe_a2a=True) == {"side_stream_fragmentation"}
    assert codes(forced_balance=True, use_torch_fsdp2=True, sync_free_stage=3) == {"fsdp2_memory_untested", "worst_case_buffers"}
    assert codes(forced_balance=True, schedule="zero-bubble") == {"deferred_weight_gradients"}


def test_a_chunk_without_layers_is_priced() -> None:
    """The loss alone on the last stage."""
    arch = llama_70b(7)
    ranks = run(arch, 8, 8, pp=8, pipeline_layout="Et|" + "t|" * 6 + "L").ranks
    assert ranks[-1].components["weights"] == 2 * (8192 * arch.padded_vocab_size(1) + 8192)
    assert ranks[-1].components["saved_head"] > 0


def test_the_documentation_lists_every_component() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "memory.md").read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    assert set(COMPONENTS) <= listed
