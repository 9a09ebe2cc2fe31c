"""A cheap guess of the iteration time of a shape from nominal figures: the order in which seeds are tried, never a result.

Of a micro-batch on a pipeline stage: FLOPs, a fixed cost a layer, exchanges of TP, EP, CP and between stages; then the bubble, gradients
and the optimizer. Peaks and link speeds are the data sheets': none of the engine's calibrated rates is read, so the order does not hang on
them. It is right about which effects are large and 10-30% off about how large. The shares below are judgement, chosen so that the order
of the ten cases of benchmarks/search_quality.py comes out right; its `--held-out` cases had no say, but for one
(Qwen2.5 72B). They stand here and not in the catalogue, whose every change makes a new engine: they decide no number, only what is tried
first, and a wrong one costs trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.workload import Workload
from primus_mcp.projection.parameters import embedding_parameters, layer_parameters
from primus_mcp.projection.performance.flops import expert_gemm_flops, model_flops_per_sequence
from primus_mcp.search.topologies import GridPoint
from primus_mcp.space.layouts import balanced_chunks
from primus_mcp.space.rules.moe import DEEPEP_GROUPS
from primus_mcp.units import BF16_BYTES, FP8_BYTES, FP32_BYTES

_SHARE_OF_PEAK, _SHARE_OF_LINK = 0.45, 0.7
"""What a long run sustains of the BF16 peak and of a link."""
_EXPERT_SPEED = 0.6
"""GEMMs of routed experts over others of the same FLOPs: narrow, and unevenly filled."""
_FP8_SPEED = 1.25
"""A layer in FP8 over the same in BF16: GEMMs nearly double, casts and everything else do not."""
_LAYER_S, _MOE_LAYER_S, _PLAIN_MOE_LAYER_S = 0.001, 0.005, 0.010
"""Fixed cost of forward and backward of a layer, whatever the tokens: launches, small kernels, in MoE layers routing and a small GEMM an
expert; without DeepEP's groups the host also waits for the counts of each expert."""
_FORWARD_SHARE = 0.4
"""Of a layer's time: a third of the FLOPs, and more than a third of what is no GEMM."""
_WEIGHT_BYTES = (20, 40)
"""HBM traffic a parameter and micro-batch, outside the routed experts and in them: read forward and backward, gradient added up in FP32;
an expert's matrices also see few tokens each, so that casts and reads are not hidden."""
_HIDDEN_BY_OVERLAP = 0.5
"""Share of CP's exchange that attention hides, and of the gradients' that the backward pass does."""
_TP_PASSES, _EP_PASSES, _CP_PASSES = 5, 4, 3
"""Times that a layer's tokens cross the links: gather and scatter around attention, and again around an MLP that TP splits; dispatch and
combine, forward and backward; keys and values forward, backward, their gradients."""
_TOKEN_PASSES, _COPY_PASSES, _ACTIVATION_PASSES = 60, 40, 12
"""Times that kernels between the GEMMs move a token's hidden state, forward and backward; each of its copies for an expert; an MLP's
activation."""
_OPTIMIZER_BYTES = 40
"""HBM traffic of Adam a parameter: read and write of master, two moments and gradient, and the copy."""
_KEPT_HIDDEN, _KEPT_COPY, _KEPT_MLP = 10, 3, 3
"""Times a token's hidden state, each of its copies for an expert, and an MLP's activation are kept for the backward pass."""
_FP8_COPIES = 2
"""Of a weight: as it is and transposed."""
_STATE_BYTES = 12
"""Master weights and two moments of Adam in FP32, spread over the copies."""


@lru_cache(maxsize=4096)
def _rank_layers(arch: Architecture, pp: int, vpp: int) -> tuple[int, int]:
    """Layers of the fullest rank of an uneven layout, and of the last."""
    chunks = balanced_chunks(arch, pp, vpp)
    ranks = [sum(chunks[rank::pp]) for rank in range(pp)]
    return max(ranks), ranks[-1]


@dataclass(frozen=True)
class Estimate:
    """Guesses for one workload on one cluster. `gbs`: the batch that trials are held to; None: the workload's own."""

    workload: Workload
    cluster: Cluster
    gbs: int | None = None

    @cached_property
    def _work_s(self) -> float:
        """FLOPs of one sequence at the sustained rates of one GPU."""
        arch = self.workload.architecture
        experts = 3 * expert_gemm_flops(arch) * arch.seq_length
        flops = model_flops_per_sequence(arch, 1) + experts * (1 / _EXPERT_SPEED - 1)
        return flops / (self.cluster.gpu.peak_flops["bf16"] * _SHARE_OF_PEAK)

    @cached_property
    def _between_s(self) -> float:
        """HBM traffic of one sequence between the GEMMs of all layers."""
        arch = self.workload.architecture
        moe = sum(arch.moe_layers)
        moved = arch.num_layers * _TOKEN_PASSES * arch.hidden_size + (arch.num_layers - moe) * _ACTIVATION_PASSES * arch.ffn_hidden_size
        if arch.experts is not None:
            copy = _COPY_PASSES * arch.hidden_size + _ACTIVATION_PASSES * arch.experts.expert_ffn_hidden_size
            moved += moe * arch.experts.top_k * copy
        return moved * arch.seq_length * BF16_BYTES / self.cluster.gpu.hbm_bandwidth_bytes_per_s

    @cached_property
    def _heads(self) -> float:
        """Share of the FLOPs in output matrices, also of MTP layers: all on the last stage."""
        arch = self.workload.architecture
        heads = 6 * (1 + arch.mtp_num_layers) * arch.hidden_size * arch.padded_vocab_size(1) * arch.seq_length
        return heads / model_flops_per_sequence(arch, 1)

    def _layers_s(self, ep: int) -> float:
        arch = self.workload.architecture
        moe_s = _MOE_LAYER_S if ep in DEEPEP_GROUPS else _PLAIN_MOE_LAYER_S
        return sum(moe_s if moe else _LAYER_S for moe in arch.moe_layers)

    @cached_property
    def _parameters(self) -> tuple[float, float]:
        """Of all layers and the embeddings: outside the routed experts, and in them."""
        arch = self.workload.architecture
        kinds = [arch.layer_shape(layer) for layer in range(arch.num_layers)]
        total = {kind: layer_parameters(arch, kind[0], 1, 1, 1, kind[1]).total for kind in set(kinds)}
        spread = arch.experts.num_experts if arch.experts is not None and arch.is_moe else 1
        least = {kind: layer_parameters(arch, kind[0], 1, spread, 1, kind[1]).total for kind in set(kinds)}
        routed = {kind: (total[kind] - least[kind]) * spread / max(1, spread - 1) for kind in total}
        all_layers, in_experts = (float(sum(table[kind] for kind in kinds)) for table in (total, routed))
        return all_layers - in_experts + 2 * embedding_parameters(arch, 1).total, in_experts

    @property
    def _nic(self) -> float:
        return _SHARE_OF_LINK * self.cluster.network.nic_bandwidth_bytes_per_s

    def _link(self, group: int, apart: int = 1) -> float:
        """Bytes/s of a GPU in a group whose ranks are `apart` from each other: through its NIC where they leave the node; in a mesh over
        the links to the others of the group only, so small groups are slow.
        """
        network = self.cluster.network
        if group * apart > self.cluster.tightly_linked_gpus:
            return self._nic
        links = (group - 1) / (network.node_size - 1) if network.node_topology == "mesh" else 1.0
        return _SHARE_OF_LINK * network.node_bandwidth_bytes_per_s * links

    def _split_s(self, point: GridPoint, tokens: float) -> float:
        """Exchanges of TP and CP of all layers for a micro-batch of `tokens` a CP rank."""
        arch, layers = self.workload.architecture, self.workload.architecture.num_layers
        total = 0.0
        if point.tp > 1:
            passes = _TP_PASSES * (2 - sum(arch.moe_layers) / layers)
            sent = (point.tp - 1) / point.tp * tokens * arch.hidden_size * BF16_BYTES
            total += layers * passes * sent / self._link(point.tp)
        if point.cp > 1:
            mla = arch.latent_attention
            width = 2 * arch.num_query_groups * arch.head_dim
            if mla is not None:
                width = arch.num_attention_heads * (mla.qk_head_dim + mla.v_head_dim)
            sent = (point.cp - 1) * tokens * width * BF16_BYTES / point.tp
            exposed = (1 - _HIDDEN_BY_OVERLAP) * arch.attending_layers * _CP_PASSES
            total += exposed * sent / self._link(point.cp, point.tp)
        return total

    def _experts_s(self, point: GridPoint, tokens: float) -> float:
        """Dispatch and combine of all layers: a copy for each expert inside the node, at most one for each other node by NIC."""
        arch = self.workload.architecture
        if arch.experts is None or point.ep == 1:
            return 0.0
        node, top_k = min(point.ep, self.cluster.tightly_linked_gpus), arch.experts.top_k
        copies = min(top_k, point.ep) * (node - 1) / point.ep
        sent = sum(arch.moe_layers) * _EP_PASSES * tokens / point.tp * arch.hidden_size * BF16_BYTES
        inside_s = copies * sent / self._link(node) if node > 1 else 0.0
        outside = min(top_k * (1 - node / point.ep), point.ep / node - 1)
        return inside_s + outside * sent / self._nic

    def _held(self, point: GridPoint) -> tuple[float, float]:
        """Parameters of a GPU with all layers: outside the routed experts, and in them."""
        shared, routed = self._parameters
        return shared / point.tp, routed / point.ep

    def _once_s(self, point: GridPoint) -> float:
        """Gradients, parameters and the optimizer, once an iteration."""
        total = 0.0
        for held, split in zip(self._held(point), (point.tp, point.ep), strict=True):
            copies = self.cluster.world_size // (split * point.pp)
            if copies > 1:
                sent = held / point.pp * (copies - 1) / copies * (FP32_BYTES + BF16_BYTES)
                total += (1 - _HIDDEN_BY_OVERLAP) * sent / self._link(copies, split)
            total += held / point.pp / copies * _OPTIMIZER_BYTES / self.cluster.gpu.hbm_bandwidth_bytes_per_s
        return total

    @cached_property
    def _kept(self) -> float:
        """Bytes of activations that all layers keep of a token for the backward pass, with flash attention."""
        arch = self.workload.architecture
        moe = sum(arch.moe_layers)
        kept = arch.num_layers * _KEPT_HIDDEN * arch.hidden_size + (arch.num_layers - moe) * _KEPT_MLP * arch.ffn_hidden_size
        if arch.experts is not None:
            kept += moe * arch.experts.top_k * (_KEPT_COPY * arch.hidden_size + _KEPT_MLP * arch.experts.expert_ffn_hidden_size)
        return BF16_BYTES * kept

    def _micro_batches(self, point: GridPoint) -> float:
        gbs = self.workload.baseline.gbs if self.gbs is None else self.gbs
        return gbs * point.tp * point.pp * point.cp / self.cluster.world_size / point.mbs

    def _static_bytes(self, point: GridPoint, *, fp8: bool, etp: int = 1) -> float:
        """Weights, gradients and optimizer states of a GPU."""
        static = 0.0
        for whole, split in zip(self._parameters, (point.tp, point.ep * etp), strict=True):
            held = whole / split
            copies = self.cluster.world_size / (split * point.pp)
            static += held / point.pp * (BF16_BYTES + FP32_BYTES + (_FP8_COPIES * FP8_BYTES if fp8 else 0) + _STATE_BYTES / copies)
        return static

    def _tokens_in_flight(self, point: GridPoint) -> float:
        """Of rank 0, which holds PP (1 + (PP - 1) / (PP VPP)) micro-batches of its stage, spread over CP and TP (sequence parallelism)."""
        in_flight = min(self._micro_batches(point), point.pp + ((point.pp - 1) / point.vpp if point.vpp > 1 else 0))
        return in_flight * point.mbs * self.workload.architecture.seq_length / (point.cp * point.tp)

    def recompute_needed(self, point: GridPoint, *, fp8: bool = False) -> float:
        """Guess of the share of layers, 0 to 1, whose activations must not be kept."""
        activations = self._tokens_in_flight(point) * self._kept / point.pp
        over = self._static_bytes(point, fp8=fp8) + activations - self.cluster.memory_cap_bytes
        return min(1.0, max(0.0, over / activations))

    def least_bytes(self, point: GridPoint, *, etp: int = 1) -> float:
        """Guess of what a GPU needs where every layer is recomputed: its states, the input of each layer, and one layer at work. `etp`:
        ranks that split an expert's matrices.
        """
        arch = self.workload.architecture
        inputs = arch.num_layers / point.pp * arch.hidden_size * BF16_BYTES
        at_work = point.mbs * arch.seq_length / (point.cp * point.tp) * self._kept / arch.num_layers
        return self._static_bytes(point, fp8=False, etp=etp) + self._tokens_in_flight(point) * inputs + at_work

    def _stage(self, point: GridPoint, layer: float, heads: float) -> float:
        """Seconds of the fullest rank: the layers of its virtual stages, as layouts share them out; on the last one MTP and heads too."""
        arch, pp = self.workload.architecture, point.pp
        if arch.num_layers % (pp * point.vpp) == 0:
            most = last = arch.num_layers // pp
        else:
            most, last = _rank_layers(arch, pp, point.vpp)
        return max(most * layer, (last + arch.mtp_num_layers) * layer + heads)

    def time_s(self, point: GridPoint, *, recomputed: float = 0.0, fp8: bool = False) -> float:
        """Seconds of an iteration with 1F1B, interleaved where VPP > 1; `recomputed`: share of the layers whose forward pass runs twice."""
        arch = self.workload.architecture
        tokens = point.mbs * arch.seq_length / point.cp
        flops_s = point.mbs * self._work_s / (point.tp * point.cp)
        moved = sum(held * traffic for held, traffic in zip(self._held(point), _WEIGHT_BYTES, strict=True))
        weights_s = moved / self.cluster.gpu.hbm_bandwidth_bytes_per_s
        between_s = point.mbs * self._between_s / (point.tp * point.cp)
        work = flops_s * (1 - self._heads) / (_FP8_SPEED if fp8 else 1.0) + between_s + weights_s + self._layers_s(point.ep)
        exchange = self._split_s(point, tokens) + self._experts_s(point, tokens)
        layers_s = work * (1 + recomputed * _FORWARD_SHARE) + exchange * (1 + recomputed / 2)
        busy = self._stage(point, layers_s / (arch.num_layers + arch.mtp_num_layers), flops_s * self._heads)
        hops = 0.0
        if point.pp > 1:
            hops = 2 * point.vpp * tokens / point.tp * arch.hidden_size * BF16_BYTES / self._nic
        waiting = (point.pp - 1) / point.vpp
        return (busy + hops) * (self._micro_batches(point) + waiting) + self._once_s(point)
