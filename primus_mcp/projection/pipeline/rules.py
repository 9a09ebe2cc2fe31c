"""Which sizes each schedule exists for, with the numbers in the reason."""

from __future__ import annotations

SPLIT_SCHEDULES = ("zero-bubble", "zb-h2", "zero-bubble-heuristic", "zbv-formatted", "zbv-formatted-a2a", "v-half", "v-min")
STREAMED_SCHEDULES = ("dualpipe", "dualpipe-v")  # forwards of one stream run beside backwards of the other
VEE_SCHEDULES = ("zbv-formatted", "zbv-formatted-a2a", "v-half", "v-min", *STREAMED_SCHEDULES)
ONE_CHUNK_SCHEDULES = ("gpipe", "1f1b", "zero-bubble", "zb-h2", "zero-bubble-heuristic")
INTERLEAVED_SCHEDULES = ("interleaved", "interleaved-a2a")
SPLIT_PAIR_SCHEDULES = ("zbv-formatted-a2a",)  # a forward and an input gradient run overlapped
PAIRED_SCHEDULES = ("1f1b-a2a", "interleaved-a2a", *SPLIT_PAIR_SCHEDULES, *STREAMED_SCHEDULES)  # the others: a forward and a full backward
SCHEDULES = (*ONE_CHUNK_SCHEDULES, "1f1b-a2a", *INTERLEAVED_SCHEDULES, *VEE_SCHEDULES)

SOLVED_SCHEDULE = "seaailab-ilp"
"""Its order is solved for from the times of the stages (`ilp.solve`), so it is not among those that sizes alone define."""


def model_copies(schedule: str) -> int:
    """2 where every rank holds a stage of each of two copies of the model, each of which takes half of the micro-batches."""
    return 2 if schedule == "dualpipe" else 1


def overlapped_schedule(schedule: str) -> str:
    """The schedule that runs when expert all-to-all is overlapped (Megatron's `overlap_moe_expert_parallel_comm`).

    1f1b and interleaved become their paired forms, which hold one chunk more. zbv-formatted keeps its order, with neighbours paired; the
    other split schedules overlap nothing (AMD-AGI/Primus primuspipe/pipeline_launcher.py combines under zbv-formatted only).
    """
    return f"{schedule}-a2a" if schedule in ("1f1b", "interleaved", "zbv-formatted") else schedule


def order_problem(schedule: str, pp: int, vpp: int, micro_batches: int, group_size: int | None = None) -> str | None:
    """Why a schedule has no order for these sizes; None where it has one.

    interleaved: pp >= 2, VPP >= 2, pp <= g <= m and (m mod g = 0 or m mod g >= pp), g = group size, pp by default (Megatron-LM
    core/pipeline_parallel/schedules.py asserts both). zbv-formatted: VPP = 2 and m >= 2 pp - 1 (the runtime pads below that
    without a word). v-half, v-min: VPP = 2, pp >= 2. dualpipe: VPP = 2 (a chunk of each copy), pp and m even, m >= 2 pp of both
    directions together; dualpipe-v: VPP = 2, pp >= 2, m >= 2 pp. 1f1b-a2a: pp = 1, beyond that the overlap needs interleaving. The
    others: VPP = 1.
    """
    if schedule not in SCHEDULES and schedule != SOLVED_SCHEDULE:
        return f"schedule {schedule!r} is not one of {', '.join(SCHEDULES)}"
    if min(pp, vpp, micro_batches) < 1:
        return f"PP {pp}, VPP {vpp} and {micro_batches} micro-batches must all be at least 1"
    if schedule in ONE_CHUNK_SCHEDULES or schedule == SOLVED_SCHEDULE:
        return f"{schedule} runs one chunk a rank, VPP is {vpp}" if vpp != 1 else None
    if schedule == "1f1b-a2a":
        return f"overlapped expert all-to-all needs VPP >= 2 at PP > 1, PP is {pp} and VPP {vpp}" if (pp, vpp) != (1, 1) else None
    if schedule in INTERLEAVED_SCHEDULES:
        return _interleaved_problem(pp, vpp, micro_batches, pp if group_size is None else group_size)
    if vpp != 2:
        return f"{schedule} needs VPP 2, VPP is {vpp}"
    if schedule in STREAMED_SCHEDULES:
        return _streamed_problem(schedule, pp, micro_batches)
    if schedule in ("zbv-formatted", "zbv-formatted-a2a"):
        least = 2 * pp - 1
        return f"{schedule} needs at least 2*PP-1 = {least} micro-batches, there are {micro_batches}" if micro_batches < least else None
    return f"{schedule} needs PP >= 2, PP is {pp}" if pp < 2 else None


def _streamed_problem(schedule: str, pp: int, micro_batches: int) -> str | None:
    if model_copies(schedule) == 2 and (pp % 2 or micro_batches % 2):
        return f"{schedule} needs even numbers of ranks and micro-batches, PP is {pp} and there are {micro_batches}"
    if pp < 2:
        return f"{schedule} needs PP >= 2, PP is {pp}"
    return f"{schedule} needs at least 2*PP = {2 * pp} micro-batches, there are {micro_batches}" if micro_batches < 2 * pp else None


def _interleaved_problem(pp: int, vpp: int, micro_batches: int, group: int) -> str | None:
    if pp < 2 or vpp < 2:
        return f"interleaved needs PP >= 2 and VPP >= 2, PP is {pp} and VPP {vpp}"
    if group < pp:
        return f"the micro-batch group size {group} is below PP {pp}"
    if group > micro_batches:
        return f"interleaved needs at least {group} micro-batches (its group size), there are {micro_batches}"
    rest = micro_batches % group
    if rest and rest < pp:
        return f"{micro_batches} micro-batches leave {rest} over groups of {group}: interleaved needs 0 or at least PP {pp} left"
    return None
