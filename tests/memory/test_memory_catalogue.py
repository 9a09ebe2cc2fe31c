"""Laws of the memory projection over random legal trials of every model of the catalogue."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import pytest

from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.published import published_models
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.memory import MemoryProjection
from primus_mcp.projection.memory.projection import project_placed
from primus_mcp.projection.parameters import rank_parameters, total_parameters
from primus_mcp.projection.placement import place
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.legality import check_legality

CLUSTER = make_cluster("mi355x", num_nodes=64)
WANTED, TRIES = 5, 400
CHOICES: Mapping[str, tuple[Any, ...]] = {
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4, 8),
    "ep": (1, 2, 4, 8, 16, 32),
    "cp": (1, 1, 2, 4),
    "vpp": (1, 1, 2),
    "mbs": (1, 2, 4),
    "pp_schedule": (None, None, "zerobubble", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min"),
    "recompute_granularity": (None, "none", "selective", "full"),
    "cross_entropy_loss_fusion": (None, False),
    "use_torch_fsdp2": (None, None, True),
    "use_turbo_deepep": (None, True),
    "sync_free_stage": (None, 1, 2, 3),
    "fp8": (None, "hybrid", "mxfp8"),
}
MIXTURE_ONLY = ("ep", "use_turbo_deepep", "sync_free_stage")


def _trials(workload: Workload) -> Iterator[TrainingConfig]:
    """Legal configurations by the trainer's rules, drawn by the model's name."""
    draw = random.Random(workload.architecture.name)
    names = [name for name in CHOICES if workload.architecture.is_moe or name not in MIXTURE_ONLY]
    found = 0
    for _ in range(TRIES):
        trial = TrialConfig(**{name: draw.choice(CHOICES[name]) for name in names}, gbs=8192)
        verdict = check_legality(workload, trial, CLUSTER, allow_policy=True)
        if verdict.legal and verdict.config is not None:
            yield verdict.config
            found += 1
        if found == WANTED:
            return


def _project(workload: Workload, config: TrainingConfig, **changes: Any) -> MemoryProjection:
    arch, config = workload.architecture, replace(config, **changes)
    return project_placed(arch, config, place(arch, config, CLUSTER.world_size), "amd")


def _longer(workload: Workload, config: TrainingConfig) -> MemoryProjection:
    arch = replace(workload.architecture, seq_length=2 * workload.architecture.seq_length)
    return project_placed(arch, config, place(arch, config, CLUSTER.world_size), "amd")


def _assert_sound(memory: MemoryProjection) -> None:
    for rank in memory.ranks:
        assert all(isfinite(size) and size > 0 for size in rank.components.values())
        assert sum(rank.components.values()) == rank.device_bytes
        assert 0 < rank.allocated_bytes <= rank.reserved_bytes <= rank.device_bytes <= rank.upper_bytes


@pytest.mark.parametrize("name", sorted(published_models()))
def test_laws_hold_for_random_legal_trials(name: str) -> None:
    """Finite, positive, summing; growing with micro-batch and sequence; no smaller without recomputation; no smaller under imbalance."""
    workload = workload_from_model(name)
    configs = list(_trials(workload))
    assert len(configs) == WANTED
    for config in configs:
        memory = _project(workload, config)
        _assert_sound(memory)
        larger = _project(workload, config, mbs=2 * config.mbs, gbs=2 * config.gbs)
        plain = _project(workload, config, recompute=Recompute())
        uneven = _project(workload, config, expert_load_imbalance=2.0)
        for own, *others in zip(memory.ranks, larger.ranks, _longer(workload, config).ranks, strict=True):
            assert all(own.device_bytes < other.device_bytes for other in others), (config, own.rank)
        for own, without, hot in zip(memory.ranks, plain.ranks, uneven.ranks, strict=True):
            assert own.allocated_bytes <= without.allocated_bytes, (config, own.rank)
            assert own.device_bytes <= hot.device_bytes


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", sorted(published_models()))
def test_the_shards_of_all_ranks_are_the_model(name: str, tp: int) -> None:
    """TP x sharded + replicated + EP x ETP x experts = the model, less rows that pad the vocabulary; 12 bytes of states each over DP.

    The bias after the experts' second matrix is whole on every ETP rank.
    """
    arch = workload_from_model(name).architecture
    if arch.num_attention_heads % tp or max(tp, arch.num_query_groups) % min(tp, arch.num_query_groups):
        pytest.skip(f"{arch.num_attention_heads} heads do not divide over TP {tp}")
    ep = next(size for size in (8, 4, 2) if arch.experts.num_experts % size == 0) if arch.experts is not None else 1
    config = TrainingConfig(tp=tp, etp=tp, ep=ep, mbs=1, gbs=CLUSTER.world_size, sequence_parallel=tp > 1)
    placement = place(arch, config, CLUSTER.world_size)
    held = rank_parameters(arch, tp, ep, tp, placement.of_rank(0))
    padding = (arch.padded_vocab_size(tp) - arch.vocab_size) * arch.hidden_size * (1 if arch.tied_embeddings else 2)
    padding += (tp - 1) * sum(arch.moe_layers) * arch.experts.num_experts * arch.hidden_size if arch.experts and arch.linear_bias else 0
    whole = tp * held.dense_sharded + held.dense_replicated + ep * tp * held.expert
    assert whole - padding == pytest.approx(total_parameters(arch, include_mtp=True), rel=1e-9)
    components = project_placed(arch, config, placement, "amd").worst.components
    owned = held.dense / placement.dp + held.expert / placement.expert_dp
    assert components["optimizer_states"] == pytest.approx(12 * owned, abs=1)
    assert components["weights"] == 2 * held.total and components["main_gradients"] == 4 * held.total
