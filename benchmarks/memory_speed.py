"""CPU time of one memory evaluation: cold (nothing memoised) and warm (a sweep over configurations whose layers were seen)."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import product

from primus_mcp.inputs.architecture import Architecture, LatentAttention, MixtureOfExperts
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.memory.projection import MemoryProjection, project_placed
from primus_mcp.projection.placement import place

DENSE = Architecture(
    name="dense 70B",
    num_layers=80,
    hidden_size=8192,
    ffn_hidden_size=28672,
    num_attention_heads=64,
    num_query_groups=8,
    head_dim=128,
    seq_length=8192,
    vocab_size=128256,
    vocab_source="explicit",
    moe_layers=(False,) * 80,
)
MIXTURE = Architecture(
    name="MLA mixture 671B",
    num_layers=61,
    hidden_size=7168,
    ffn_hidden_size=18432,
    num_attention_heads=128,
    num_query_groups=128,
    head_dim=128,
    seq_length=4096,
    vocab_size=129280,
    vocab_source="explicit",
    latent_attention=LatentAttention(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128),
    qk_norm=True,
    experts=MixtureOfExperts(num_experts=256, top_k=8, expert_ffn_hidden_size=2048, shared_expert_ffn_hidden_size=2048),
    moe_layers=(False,) * 3 + (True,) * 58,
)


def _project(arch: Architecture, config: TrainingConfig, world: int) -> MemoryProjection:
    return project_placed(arch, config, place(arch, config, world), "amd")


def _cases() -> list[tuple[str, Architecture, TrainingConfig, int]]:
    dense = TrainingConfig(tp=8, pp=4, mbs=1, gbs=256, sequence_parallel=True)
    mixture = TrainingConfig(pp=8, ep=32, mbs=1, gbs=2048, pipeline_layout="Et*8|" + "t*8|" * 6 + "t*5L")
    return [
        ("dense TP8 PP4", DENSE, dense, 256),
        ("dense TP8 PP4 VPP5", DENSE, replace(dense, vpp=5, schedule="interleaved"), 256),
        ("dense TP8 PP4 ZBV", DENSE, replace(dense, vpp=2, schedule="zbv-formatted"), 256),
        ("MLA mixture PP8 EP32", MIXTURE, mixture, 256),
    ]


def main() -> None:
    """Prints microseconds of CPU an evaluation."""
    for name, arch, config, world in _cases():
        start = time.process_time()
        _project(arch, config, world)
        cold = time.process_time() - start
        variants = [
            replace(config, overlap_grad_reduce=flag, gbs=config.gbs * scale, recompute=recompute)
            for flag, scale, recompute in product(
                (False, True), (1, 2, 4), (Recompute(), Recompute(granularity="full", method="uniform", num_layers=1))
            )
        ]
        for variant in variants:
            _project(arch, variant, world)
        rounds = 20
        start = time.process_time()
        for _ in range(rounds):
            for variant in variants:
                _project(arch, variant, world)
        warm = (time.process_time() - start) / rounds / len(variants)
        sys.stdout.write(f"{name:24s} cold {cold * 1e6:8.0f} us   warm {warm * 1e6:7.1f} us\n")


if __name__ == "__main__":
    main()
