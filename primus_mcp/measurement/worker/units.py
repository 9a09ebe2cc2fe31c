"""Units as callables over tensors: forward is the call, backward is autograd's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from primus_mcp.measurement.job import Unit
from primus_mcp.measurement.worker.device import Device
from primus_mcp.measurement.worker.kernels import Layers, activation


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """`forward()` computes from `inputs`; gradients are wanted for `inputs` that require them and for `weights`. Forward only: no weights,
    no inputs with gradients.
    """

    forward: Callable[[], torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    weights: tuple[torch.Tensor, ...]


def _rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of [batch, sequence, heads, dim]."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cosine + turned * sine


def _angles(device: Device, length: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return device.tensor(length, 1, dim), device.tensor(length, 1, dim)


Heads = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def _query_heads(layers: Layers, device: Device, sizes: dict[str, int]) -> Heads:
    """Fused QKV of multi-head or grouped-query attention, with rotary embedding and QK-norm where the model has them."""
    batch, length, dim = sizes["mbs"], sizes["seq"], sizes["qk_dim"]
    widths = [sizes["heads"] * dim, sizes["groups"] * dim, sizes["groups"] * dim]
    project = layers.linear(sizes["hidden"], sum(widths))
    gate = layers.linear(sizes["hidden"], widths[0]) if sizes["gate"] else None
    norms = (layers.norm(dim), layers.norm(dim)) if sizes["qk_norm"] else None
    cosine, sine = _angles(device, length, dim)

    def heads(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = (part.reshape(batch, length, -1, dim) for part in project(x).split(widths, dim=-1))
        if norms is not None:
            q, k = norms[0](q), norms[1](k)
        if sizes["rope"]:
            q, k = _rotate(q, cosine, sine), _rotate(k, cosine, sine)
        if gate is not None:
            q = q * torch.sigmoid(gate(x)).reshape(q.shape)
        return q, k, v

    return heads


def _latent_heads(layers: Layers, device: Device, sizes: dict[str, int]) -> Heads:
    """MLA: compressed queries and keys, their norms, up-projections, rotary part shared by all heads."""
    batch, length, heads, rope = sizes["mbs"], sizes["seq"], sizes["heads"], sizes["rope_dim"]
    nope, rank = sizes["qk_dim"] - rope, sizes["kv_rank"]
    down = layers.linear(sizes["hidden"], rank + rope)
    up = layers.linear(rank, heads * (nope + sizes["v_dim"]))
    kv_norm = layers.norm(rank)
    query_down = layers.linear(sizes["hidden"], sizes["q_rank"]) if sizes["q_rank"] else None
    query_norm = layers.norm(sizes["q_rank"]) if sizes["q_rank"] else None
    query_up = layers.linear(sizes["q_rank"] or sizes["hidden"], heads * sizes["qk_dim"])
    cosine, sine = _angles(device, length, rope)

    def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        latent = query_norm(query_down(x)) if query_down is not None and query_norm is not None else x
        q = query_up(latent).reshape(batch, length, heads, -1)
        compressed, shared = down(x).split([rank, rope], dim=-1)
        keys, v = up(kv_norm(compressed)).reshape(batch, length, heads, -1).split([nope, sizes["v_dim"]], dim=-1)
        turned = _rotate(shared.reshape(batch, length, 1, rope), cosine, sine).expand(-1, -1, heads, -1)
        q = torch.cat((q[..., :nope], _rotate(q[..., nope:], cosine, sine)), dim=-1)
        return q, torch.cat((keys, turned), dim=-1), v

    return split


def attention(layers: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """Norm, heads, core, projection, residual; and the norm and residual of the layer's second half, so that a layer has all of them.

    Norms and residuals run over `norm_tokens` tokens (the shard under sequence parallelism), the rest over all.
    """
    tokens, shard, hidden = sizes["tokens"], sizes["norm_tokens"], sizes["hidden"]
    heads = (_latent_heads if sizes["kv_rank"] else _query_heads)(layers, device, sizes)
    core, project = layers.attention(sizes), layers.linear(sizes["heads"] * sizes["v_dim"], hidden)
    first, second = layers.norm(hidden), layers.norm(hidden)
    x = device.tensor(shard, hidden, grad=True, scale=1.0)
    rest = device.tensor(tokens - shard, hidden, grad=True, scale=1.0) if shard < tokens else None

    def forward() -> torch.Tensor:
        normed = first(x)
        whole = normed if rest is None else torch.cat((normed, rest))
        q, k, v = heads(whole.reshape(sizes["mbs"], sizes["seq"], hidden))
        out = project(core(q, k, v).reshape(tokens, -1))
        middle = x + out[:shard]
        return middle + second(middle)

    return Built(forward=forward, inputs=(x,) if rest is None else (x, rest), weights=tuple(layers.weights))


def attention_core(layers: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """Scores, softmax, values."""
    batch, length = sizes["mbs"], sizes["seq"]
    q = device.tensor(batch, length, sizes["heads"], sizes["qk_dim"], grad=True, scale=1.0)
    k = device.tensor(batch, length, sizes["groups"], sizes["qk_dim"], grad=True, scale=1.0)
    v = device.tensor(batch, length, sizes["groups"], sizes["v_dim"], grad=True, scale=1.0)
    core = layers.attention(sizes)
    return Built(forward=lambda: core(q, k, v), inputs=(q, k, v), weights=tuple(layers.weights))


def _mlp(layers: Layers, hidden: int, width: int, *, gated: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    entry, leave = layers.linear(hidden, (2 if gated else 1) * width), layers.linear(width, hidden)
    return lambda x: leave(activation(entry(x), gated=gated))


def dense_mlp(layers: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """fc1, activation, fc2."""
    x = device.tensor(sizes["tokens"], sizes["hidden"], grad=True, scale=1.0)
    mlp = _mlp(layers, sizes["hidden"], sizes["width"], gated=bool(sizes["gated"]))
    return Built(forward=lambda: mlp(x), inputs=(x,), weights=tuple(layers.weights))


def balanced_rows(sizes: dict[str, int], device: Device) -> tuple[torch.Tensor, list[int]]:
    """(source token of each row, rows of each local expert) where every expert gets the same, as forced balance does."""
    experts, rows = sizes["experts"], sizes["rows"]
    counts = [rows // experts + (index < rows % experts) for index in range(experts)]
    return torch.arange(rows, device=device.target) % sizes["tokens"], counts


def moe(layers: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """Router with softmax and top-k, gather of the rows, experts, weighted scatter back, shared expert."""
    hidden, gated = sizes["hidden"], bool(sizes["gated"])
    x = device.tensor(sizes["tokens"], hidden, grad=True, scale=1.0)
    router = layers.linear(hidden, sizes["routed"])
    source, counts = balanced_rows(sizes, device)
    entry = layers.grouped(sizes["experts"], hidden, (2 if gated else 1) * sizes["width"], counts)
    leave = layers.grouped(sizes["experts"], sizes["width"], hidden, counts)
    shared = _mlp(layers, hidden, sizes["shared_width"], gated=gated) if sizes["shared_width"] else None
    side = device.tensor(sizes["shared_tokens"], hidden, grad=True, scale=1.0) if sizes["shared_tokens"] > sizes["tokens"] else None

    def forward() -> torch.Tensor:
        scores = torch.softmax(router(x).float(), dim=-1).topk(sizes["top_k"], dim=-1).values.to(x.dtype)
        weight = scores.reshape(-1)[torch.arange(sizes["rows"], device=x.device) % scores.numel()]
        out = leave(activation(entry(x.index_select(0, source)), gated=gated)) * weight[:, None]
        total = torch.zeros_like(x).index_add(0, source, out)
        if shared is None:
            return total
        extra = shared(x if side is None else side)
        return total + extra[: total.shape[0]]

    return Built(forward=forward, inputs=(x,) if side is None else (x, side), weights=tuple(layers.weights))


def embedding(_: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """Look-up, and the scatter-add of its gradient."""
    table = device.tensor(sizes["vocab"], sizes["hidden"], grad=True)
    ids = torch.randint(sizes["vocab"], (sizes["tokens"],), device=device.target)
    return Built(forward=lambda: functional.embedding(ids, table), inputs=(), weights=(table,))


def head(layers: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """Final norm, output matrix, cross-entropy in fp32."""
    x = device.tensor(sizes["tokens"], sizes["hidden"], grad=True, scale=1.0)
    norm = layers.norm(sizes["hidden"])
    weight = device.tensor(sizes["vocab"], sizes["hidden"], grad=True)
    labels = torch.randint(sizes["vocab"], (sizes["tokens"],), device=device.target)
    return Built(
        forward=lambda: functional.cross_entropy(functional.linear(norm(x), weight).float(), labels),
        inputs=(x,),
        weights=(*layers.weights, weight),
    )


def optimizer(_: Layers, device: Device, sizes: dict[str, int]) -> Built:
    """One step of Adam with fp32 states after the gradient norm; nothing runs backward."""
    weight = torch.zeros(sizes["elements"], dtype=torch.float32, device=device.target, requires_grad=True)
    weight.grad = torch.full_like(weight, 1e-3)
    copy = weight.detach().to(torch.bfloat16)
    adam = torch.optim.Adam([weight], fused=True)

    def step() -> torch.Tensor:
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        adam.step()
        return copy.copy_(weight.detach())

    return Built(forward=step, inputs=(), weights=())


BUILDERS: dict[str, Callable[[Layers, Device, dict[str, int]], Built]] = {
    "attention": attention,
    "attention_core": attention_core,
    "dense_mlp": dense_mlp,
    "moe": moe,
    "embedding": embedding,
    "head": head,
    "optimizer": optimizer,
}


def build(unit: Unit, layers: Layers, device: Device) -> Built:
    """The unit with fresh weights and inputs."""
    layers.weights.clear()
    return BUILDERS[unit.kind](layers, device, dict(unit.sizes))
