"""Orders of schedules whose chunks follow each other round the ranks: GPipe, 1F1B, interleaved 1F1B, ZB-H1, ZB-H2.

Every function returns one row a rank and assumes sizes that `rules.order_problem` accepts. w = warm-up forwards of a rank.
"""

from __future__ import annotations

from primus_mcp.projection.pipeline.order import Row, Task


def gpipe(pp: int, micro_batches: int) -> tuple[Row, ...]:
    """F^m D^m, first in first out. Huang et al. 2019, arXiv:1811.06965."""
    row = tuple(Task("F", i, 0) for i in range(micro_batches)) + tuple(Task("D", i, 0) for i in range(micro_batches))
    return (row,) * pp


def _paired(forward: list[Task], backward: list[Task], warm: int) -> Row:
    """`warm` forwards, then forward and backward in turn, then the backwards that are left."""
    pairs = len(forward) - warm
    row = forward[:warm]
    for k in range(pairs):
        row += [forward[warm + k], backward[k]]
    return tuple(row + backward[pairs:])


def one_f_one_b(pp: int, micro_batches: int) -> tuple[Row, ...]:
    """Warm-up w = min(m, pp-1-r): F^w (F D)^(m-w) D^w. Megatron-LM core/pipeline_parallel/schedules.py, without interleaving."""
    forward = [Task("F", i, 0) for i in range(micro_batches)]
    backward = [Task("D", i, 0) for i in range(micro_batches)]
    return tuple(_paired(forward, backward, min(micro_batches, pp - 1 - rank)) for rank in range(pp))


def one_f_one_b_paired(micro_batches: int) -> tuple[Row, ...]:
    """One rank with overlapped all-to-all: F, (F D)^(m-1), D, each F D being one overlapped task; two micro-batches live."""
    forward = [Task("F", i, 0) for i in range(micro_batches)]
    backward = [Task("D", i, 0) for i in range(micro_batches)]
    return (_paired(forward, backward, 1),)


def interleaved_warm_up(pp: int, vpp: int, micro_batches: int, group_size: int, more: int = 0) -> tuple[int, ...]:
    """Forwards of each rank before the first F, D pair: min(mV, 2(pp-1-r) + (V-1)g + more).

    more: 1 where expert all-to-all is overlapped, so that each forward can run at the same time as the backward after it.
    """
    return tuple(min(micro_batches * vpp, 2 * (pp - 1 - rank) + (vpp - 1) * group_size + more) for rank in range(pp))


def interleaved(vpp: int, micro_batches: int, group_size: int, warm_up: tuple[int, ...]) -> tuple[Row, ...]:
    """Megatron's interleaved 1F1B: runs of g micro-batches pass chunk by chunk.

    The k-th backward takes the micro-batch of the k-th forward on the mirrored chunk V-1-c. Narayanan et al. 2021,
    arXiv:2104.04473; g = `microbatch_group_size_per_vp_stage`.
    """
    table = [
        (i, chunk)
        for start in range(0, micro_batches, group_size)
        for chunk in range(vpp)
        for i in range(start, min(start + group_size, micro_batches))
    ]
    forward = [Task("F", i, chunk) for i, chunk in table]
    backward = [Task("D", i, vpp - 1 - chunk) for i, chunk in table]
    return tuple(_paired(forward, backward, warm) for warm in warm_up)


def _lagged(micro_batches: int, warm: int, lag: int) -> Row:
    """F^w; for each k: F(w+k) if there is one, B(k), W(k-lag) if there is one; then the W that are left."""
    row = [Task("F", i, 0) for i in range(min(micro_batches, warm))]
    for k in range(micro_batches):
        if warm + k < micro_batches:
            row.append(Task("F", warm + k, 0))
        row.append(Task("B", k, 0))
        if k >= lag:
            row.append(Task("W", k - lag, 0))
    row += [Task("W", i, 0) for i in range(max(0, micro_batches - lag), micro_batches)]
    return tuple(row)


def zb_h1(pp: int, micro_batches: int) -> tuple[Row, ...]:
    """1F1B with W put off by r micro-batches, so every rank holds pp of them. Qi et al. 2023, arXiv:2401.10241.

    For m < pp the runtime of Primus runs F^m (B W)^m on all ranks but the last, and (F B)^m W^m there.
    """
    if micro_batches >= pp:
        return tuple(_lagged(micro_batches, pp - 1 - rank, rank) for rank in range(pp))
    ids = range(micro_batches)
    front = tuple(Task("F", i, 0) for i in ids) + tuple(task for i in ids for task in (Task("B", i, 0), Task("W", i, 0)))
    last = tuple(task for i in ids for task in (Task("F", i, 0), Task("B", i, 0))) + tuple(Task("W", i, 0) for i in ids)
    return (front,) * (pp - 1) + (last,)


def zb_h2(pp: int, micro_batches: int) -> tuple[Row, ...]:
    """Twice the warm-up of ZB-H1, w = 2(pp-1-r), and W put off by 2r: at most 2pp-1 micro-batches live. arXiv:2401.10241."""
    return tuple(_lagged(micro_batches, 2 * (pp - 1 - rank), 2 * rank) for rank in range(pp))
