"""The components of device memory, in the order in which they are shown, each with the kind of evidence behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Evidence = Literal["counted", "measured", "fitted", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """`evidence`: counted (read in source code, no run isolates it), measured (counted, and published runs match it: on NVIDIA, whose
    tensors are the same), fitted (set so that whole runs come out right) or estimated (other workloads or judgement). The weakest part of
    a component names it.
    """

    evidence: Evidence
    text: str
    source: str


_B200 = "Megatron-Core 0.14 + TE 2.11 on B200, 14 configurations within 0.31%"
_MI355X = "Primus DeepSeek-V2-Lite on MI355X, 10 runs"


def _component(evidence: Evidence, text: str, source: str) -> Component:
    return Component(evidence=evidence, text=text, source=source)


COMPONENTS: Mapping[str, Component] = MappingProxyType(
    {
        "weights": _component("measured", "BF16 weights of the rank", _B200),
        "main_gradients": _component("measured", "main gradients, not sharded by the distributed optimizer", _B200),
        "optimizer_states": _component("measured", "master weights and moments of the rank's shard", _B200),
        "fp8_weight_copies": _component("counted", "cached FP8 copies of linear weights", "TransformerEngine _fp8_workspaces"),
        "unsharded_layers": _component("counted", "layers that FSDP2 holds gathered, and their gradients", "torch fully_shard"),
        "pipeline_buffers": _component("counted", "buffers that torch pipelining never frees", "torch/distributed/pipelining/stage.py"),
        "placeholder_gradients": _component("measured", "one BF16 placeholder for each weight shape", _B200),
        "gather_buffer": _component("measured", "sequence-parallel gather buffer of the output matrix", _B200),
        "pipeline_gradient": _component("measured", "input gradient that the pipeline loop still references", _B200),
        "workspaces": _component("counted", "GEMM workspaces", "TransformerEngine gemm.py, torch BLAS defaults"),
        "saved_embedding": _component("measured", "token ids and masks of live micro-batches", _B200),
        "saved_attention": _component("measured", "saved by attention of live micro-batches", _B200),
        "saved_mlp": _component("measured", "saved by dense MLPs of live micro-batches", _B200),
        "saved_moe": _component("measured", "saved by router and experts of live micro-batches", _B200),
        "saved_head": _component("measured", "saved by MTP, output matrix and loss", _B200),
        "saved_checkpoints": _component("counted", "inputs of recomputed layers", "Megatron-LM transformer_block.py"),
        "pinned_for_weight_gradients": _component(
            "counted", "inputs and output gradients that deferred weight gradients hold", "Megatron-LM / Primus zero-bubble"
        ),
        "transient": _component("measured", "alive only while the operation at the peak runs", _B200),
        "optimizer_step": _component("counted", "fp32 copies of gradients during the step", "Megatron-LM core/optimizer"),
        "fragmentation": _component("fitted", "reserved by the allocator, not allocated", _MI355X + "; Megatron-LM#6429"),
        "communicators": _component(
            "estimated", "RCCL / NCCL buffers outside torch", "issue reports of other GPUs: LUMI (MI250X), NVIDIA/nccl#964"
        ),
        "deepep_buffers": _component("counted", "DeepEP exchange buffers outside torch", "Primus-Turbo deep_ep/config.hpp"),
        "measured_overhead": _component("measured", "outside torch, as a measured run on this device found it", "benchmark artefact"),
        "measured_live_tensors": _component("measured", "saved by measured layers beyond the analysis", "benchmark artefact"),
        "runtime": _component(
            "estimated",
            "context, code and kernel scratch outside torch",
            "AMD: fit to " + _MI355X + " where experts are exchanged, else an estimate known to 8 GiB; its parts are unknown",
        ),
    }
)
