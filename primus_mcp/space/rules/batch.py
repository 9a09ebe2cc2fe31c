"""Rules on batch sizes."""

from __future__ import annotations

from primus_mcp.space.rules.base import Case, RuleBook, megatron, whole_numbers

book = RuleBook()
MBS_LIMIT = 16
GBS_FACTORS = (0.5, 1, 2, 4)


@book.hard("B1", megatron("core/num_microbatches_calculator.py:340,348"), "GBS is a multiple of MBS x DP")
def _global_batch(case: Case) -> str | None:
    c = case.config
    if case.dp and c.gbs % (c.mbs * case.dp):
        return f"GBS {c.gbs} is not a multiple of MBS {c.mbs} x DP {case.dp} = {c.mbs * case.dp}"
    return None


@book.hard("B2", megatron("core/num_microbatches_calculator.py:233,398-481"), "batch rampup steps are multiples of MBS x DP")
def _rampup(case: Case) -> str | None:
    rampup, gbs = case.arguments.get("rampup_batch_size"), case.config.gbs
    if not rampup or not case.dp:
        return None
    numbers = whole_numbers(rampup)
    if numbers is None or len(numbers) != 3:
        return f"rampup_batch_size {str(rampup)[:80]!r} is not 3 whole numbers: start, increment and samples"
    start, increment, unit = numbers[0], numbers[1], case.config.mbs * case.dp
    if start <= 0 or increment <= 0 or gbs < start or (gbs - start) % increment or start % unit or increment % unit:
        return f"rampup from {start} by {increment} to GBS {gbs} needs whole steps of MBS x DP = {unit}"
    return None


@book.hard("B3", megatron("training/arguments.py:994-1004"), "a run is counted in iterations or in samples")
def _one_count(case: Case) -> str | None:
    a = case.arguments
    keys = ("rampup_batch_size", "train_samples", "lr_decay_samples", "lr_warmup_samples")
    if a.get("train_iters") and (counted := [key for key in keys if a.get(key)]):
        return f"train_iters {a['train_iters']} excludes {', '.join(counted)}; set train_iters to null and train_samples, or leave them out"
    return None


@book.hard("B8", megatron("training/arguments.py:1067"), "positions cover the sequence")
def _positions(case: Case) -> str | None:
    positions, seq = case.arch.max_position_embeddings, case.arch.seq_length
    if positions is not None and positions < seq:
        return f"max_position_embeddings {positions} is less than the sequence {seq}"
    return None


@book.policy("mbs-power-of-two", f"MBS is a power of two <= {MBS_LIMIT}, or the workload's own")
def _micro_batch(case: Case) -> str | None:
    mbs = case.config.mbs
    if mbs != case.workload.baseline.mbs and (mbs > MBS_LIMIT or mbs & (mbs - 1)):
        return f"MBS {mbs} is neither a power of two <= {MBS_LIMIT} nor the workload's {case.workload.baseline.mbs}"
    return None


@book.policy("gbs-factors", "GBS is 1/2, 1, 2 or 4 x the workload's")
def _gbs_factor(case: Case) -> str | None:
    gbs, own = case.config.gbs, case.workload.baseline.gbs
    if gbs not in [factor * own for factor in GBS_FACTORS]:
        return f"GBS {gbs} is none of 1/2, 1, 2, 4 x the workload's {own}"
    return None
