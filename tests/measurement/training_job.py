"""A real training loop on CPU with gloo: the truth that an anchored projection is held against. Run under torch.distributed.run.

Arguments: a JSON file (kind tp | ep | pp | one, sizes, micro_batches, steps) and the file that rank 0 writes its seconds to.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
import torch.distributed as distributed
from torch.nn import functional

Tensor: TypeAlias = torch.Tensor


class SumForward(torch.autograd.Function):  # type: ignore[misc]
    """All-reduce forward, nothing backward: the end of a tensor-parallel block."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        out = x.clone()
        distributed.all_reduce(out)
        return out

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return gradient


class SumBackward(torch.autograd.Function):  # type: ignore[misc]
    """Nothing forward, all-reduce backward: the beginning of one."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        out = gradient.contiguous().clone()
        distributed.all_reduce(out)
        return out


class Exchange(torch.autograd.Function):  # type: ignore[misc]
    """All-to-all of equal parts, both ways."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        distributed.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        out = torch.empty_like(gradient)
        distributed.all_to_all_single(out, gradient.contiguous())
        return out


class Model:
    """Part of a decoder on one rank."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.weights = job, list[Tensor]()
        kind = job["kind"]
        self.tp = 2 if kind == "tp" else 1
        self.ep = 2 if kind == "ep" else 1
        self.rank = distributed.get_rank()
        whole = kind != "pp"
        self.first, self.last = whole or self.rank == 0, whole or self.rank == 1
        count = job["layers"] // (1 if whole else 2)
        hidden, vocab = job["hidden"], job["vocab"] // self.tp
        self.angles = torch.randn(job["seq"], 1, hidden // job["heads"]), torch.randn(job["seq"], 1, hidden // job["heads"])
        self.table = self.weight(vocab, hidden) if self.first else None
        self.blocks = [(self.attention(), self.moe() if job["experts"] else self.mlp()) for _ in range(count)]
        self.final = (self.weight(hidden), self.weight(vocab, hidden)) if self.last else None

    def weight(self, *shape: int) -> Tensor:
        values = torch.randn(*shape).mul_(0.02).requires_grad_(True)
        self.weights.append(values)
        return values

    def enter(self, x: Tensor) -> Tensor:
        return SumBackward.apply(x) if self.tp > 1 else x

    def leave(self, x: Tensor) -> Tensor:
        return SumForward.apply(x) if self.tp > 1 else x

    def attention(self) -> Callable[[Tensor], Tensor]:
        job, hidden = self.job, self.job["hidden"]
        dim, heads, groups = hidden // job["heads"], job["heads"] // self.tp, job["groups"] // self.tp
        widths = [heads * dim, groups * dim, groups * dim]
        norm, entry, out = self.weight(hidden), self.weight(sum(widths), hidden), self.weight(hidden, heads * dim)
        cosine, sine = self.angles

        def rotate(x: Tensor) -> Tensor:
            half = dim // 2
            return x * cosine + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine

        def block(h: Tensor) -> Tensor:
            x = self.enter(functional.rms_norm(h, (hidden,), norm))
            parts = functional.linear(x.reshape(1, job["seq"], hidden), entry).split(widths, dim=-1)
            q, k, v = (part.reshape(1, job["seq"], -1, dim) for part in parts)
            core = functional.scaled_dot_product_attention(
                rotate(q).transpose(1, 2), rotate(k).transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=heads != groups
            )
            return h + self.leave(functional.linear(core.transpose(1, 2).reshape(job["seq"], -1), out))

        return block

    def mlp(self) -> Callable[[Tensor], Tensor]:
        hidden, width = self.job["hidden"], self.job["ffn"] // self.tp
        norm, entry, out = self.weight(hidden), self.weight(2 * width, hidden), self.weight(hidden, width)

        def block(h: Tensor) -> Tensor:
            gate, value = functional.linear(self.enter(functional.rms_norm(h, (hidden,), norm)), entry).chunk(2, dim=-1)
            return h + self.leave(functional.linear(functional.silu(gate) * value, out))

        return block

    def moe(self) -> Callable[[Tensor], Tensor]:
        job, hidden = self.job, self.job["hidden"]
        local, top_k, width, rows = job["experts"] // self.ep, job["top_k"], job["expert_ffn"], job["seq"] * job["top_k"]
        norm, router = self.weight(hidden), self.weight(job["experts"], hidden)
        entry, out = self.weight(local, hidden, 2 * width), self.weight(local, width, hidden)
        source = torch.arange(rows) % job["seq"]
        by_expert = torch.arange(rows).reshape(self.ep, local, -1).transpose(0, 1).reshape(-1)
        back = torch.argsort(by_expert)
        counts = [rows // local] * local

        def experts(x: Tensor) -> Tensor:
            gate, value = torch.cat([part @ entry[i] for i, part in enumerate(x.split(counts))]).chunk(2, dim=-1)
            return torch.cat([part @ out[i] for i, part in enumerate((functional.silu(gate) * value).split(counts))])

        def block(h: Tensor) -> Tensor:
            x = functional.rms_norm(h, (hidden,), norm)
            scores = torch.softmax(functional.linear(x, router), dim=-1).topk(top_k, dim=-1).values.reshape(-1)
            sent = x.index_select(0, source)
            if self.ep > 1:
                sent = Exchange.apply(sent).index_select(0, by_expert)
            done = experts(sent)
            if self.ep > 1:
                done = Exchange.apply(done.index_select(0, back))
            return h + torch.zeros_like(h).index_add(0, source, done * scores[:, None])

        return block

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Hidden state (or token ids on the first stage) to hidden state, or to the loss on the last stage."""
        h = self.leave(functional.embedding(x, self.table)) if self.table is not None else x
        for attention, feed_forward in self.blocks:
            h = feed_forward(attention(h))
        if self.final is None:
            return h
        norm, matrix = self.final
        logits = functional.linear(self.enter(functional.rms_norm(h, (self.job["hidden"],), norm)), matrix)
        return functional.cross_entropy(logits.float(), labels)


def one_f_one_b(model: Model, job: dict[str, Any], ids: Tensor, labels: Tensor) -> None:
    """Two stages, blocking sends and receives, as Megatron's own schedule does it."""
    shape, rank, count = (job["seq"], job["hidden"]), model.rank, job["micro_batches"]
    live: list[tuple[Tensor, Tensor]] = []
    sent: list[tuple[Any, Tensor]] = []

    def send(x: Tensor, to: int) -> None:
        """Not waited for: Megatron joins a send with the next receive, so neither side stands still for the other's turn."""
        sent.append((distributed.isend(x, to), x))

    def forward() -> None:
        x = ids
        if rank == 1:
            x = torch.empty(shape).requires_grad_(True)
            distributed.recv(x.data, 0)
        out = model.forward(x, labels)
        if rank == 0:
            send(out.detach(), 1)
        live.append((x, out))

    def backward() -> None:
        x, out = live.pop(0)
        if rank == 1:
            out.backward()
            send(x.grad, 0)
        else:
            gradient = torch.empty(shape)
            distributed.recv(gradient, 1)
            out.backward(gradient)

    warm_up = 1 - rank
    for _ in range(warm_up):
        forward()
    for _ in range(count - warm_up):
        forward()
        backward()
    for _ in range(warm_up):
        backward()
    for work, _ in sent:
        work.wait()


def dense_weights(model: Model) -> Iterator[Tensor]:
    """What every rank has a copy of under expert parallelism."""
    return (weight for weight in model.weights if weight.dim() < 3)


def waited_s() -> float:
    """Seconds that this thread was ready to run and got no core, since it began; 0 where the kernel does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def step(model: Model, job: dict[str, Any], adam: Any, copies: list[Tensor]) -> tuple[float, float, float]:
    """One iteration: micro-batches, gradient exchange, optimizer. Seconds: wall, CPU of this thread, without a core."""
    ids, labels = torch.randint(job["vocab"] // model.tp, (job["seq"],)), torch.randint(job["vocab"] // model.tp, (job["seq"],))
    distributed.barrier()
    start, start_cpu, start_waited = time.perf_counter(), time.thread_time(), waited_s()
    if job["kind"] == "pp":
        one_f_one_b(model, job, ids, labels)
    else:
        for _ in range(job["micro_batches"]):
            model.forward(ids, labels).backward()
    if model.ep > 1:
        flat = torch.cat([weight.grad.reshape(-1) for weight in dense_weights(model)])
        distributed.all_reduce(flat)
    torch.nn.utils.clip_grad_norm_(model.weights, 1.0)
    adam.step()
    for copy, weight in zip(copies, model.weights, strict=True):
        copy.copy_(weight.detach())
    adam.zero_grad(set_to_none=False)
    cpu = time.thread_time() - start_cpu
    distributed.barrier()
    return time.perf_counter() - start, cpu, waited_s() - start_waited


def end_with_parent() -> None:
    """A test that is ended leaves nothing behind."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    """Rank 0 leaves seconds of a step, medians over steps of the worse rank: wall, CPU of its thread, ready without a core."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(distributed.get_rank())
    model = Model(job)
    adam = torch.optim.Adam(model.weights, fused=True)
    copies = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in model.weights]
    seconds = [step(model, job, adam, copies) for _ in range(job["steps"])][2:]
    busiest = torch.tensor(seconds, dtype=torch.float32)
    distributed.all_reduce(busiest, op=distributed.ReduceOp.MAX)
    if model.rank == 0:
        wall, cpu, waited = (median(column.tolist()) for column in busiest.T)
        Path(sys.argv[2]).write_text(json.dumps({"wall_s": wall, "cpu_s": cpu, "waited_s": waited}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
