"""What the memory figures of a configuration rest on, in words for the answer."""

from __future__ import annotations

from typing import NamedTuple

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Vendor
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.memory.outside import uses_side_streams


class Caveat(NamedTuple):
    """`code` is stable and machine-readable, `text` is for people."""

    code: str
    text: str


def memory_caveats(arch: Architecture, config: TrainingConfig, vendor: Vendor) -> tuple[Caveat, ...]:
    """Assumptions and untested terms that apply to this configuration, most important first."""
    moe, side_streams = arch.is_moe, uses_side_streams(arch, config)
    candidates = (
        (
            moe and config.ep > 1 and not config.forced_balance,
            "expert_load_assumed",
            f"expert load is priced at {config.expert_load_imbalance:g} times the mean on every rank; real routing was seen at about 2",
        ),
        (
            side_streams,
            "side_stream_fragmentation",
            "expert exchange on a second stream holds freed blocks: 10 to 22% of activations are reserved beside them",
        ),
        (
            moe and config.ep > 1 and config.dispatcher != "deepep" and not side_streams,
            "exchange_fragmentation_unknown",
            "how much the library all-to-all fragments memory is known only between 2.5 and 17% of activations",
        ),
        (
            config.sync_free_stage == 3,
            "worst_case_buffers",
            "sync-free stage 3 allocates expert tensors for EP times the balanced rows, whatever the routing",
        ),
        (
            vendor == "amd",
            "runtime_outside_torch",
            "memory outside torch on AMD is one fit on MI355X expert runs, its parts unknown"
            if moe and config.ep > 1
            else "memory outside torch on AMD is an estimate known to 8 GiB only, which the upper bound includes: no published run without "
            "expert exchange states it",
        ),
        (
            config.fp8 is not None or config.fp4,
            "fp8_memory_untested",
            "FP8 weight copies and saved inputs are counted from source code; no published run states FP8 memory",
        ),
        (
            config.use_torch_fsdp2,
            "fsdp2_memory_untested",
            "FSDP2 memory is counted from source code; no published Megatron run states it",
        ),
        (
            config.splits_weight_gradient,
            "deferred_weight_gradients",
            "inputs and output gradients of every linear are counted until its deferred weight gradient runs",
        ),
    )
    return tuple(Caveat(code, text) for applies, code, text in candidates if applies)
