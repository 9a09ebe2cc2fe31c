"""HiGHS on the program of `ilp_model`: deterministic limits (branch-and-bound nodes, relative gap), never a clock.

HiGHS is the optional extra `ilp` (highspy, MIT): imported here and nowhere else, when a program is solved. Its wheel is a tenth of SciPy's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from primus_mcp.errors import InputError
from primus_mcp.projection.pipeline.heuristic import PlannerCosts
from primus_mcp.projection.pipeline.ilp_model import KINDS, Program, build_program
from primus_mcp.projection.pipeline.order import Row, Task

MAX_NODES = 1000
GAP = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`rows`: a shorter order than the one to beat, None where none was found. No order is shorter than `bound_s`."""

    rows: tuple[Row, ...] | None
    bound_s: float
    nodes: int


def require_solver() -> None:
    """Raises InputError where HiGHS is not installed."""
    try:
        import highspy  # noqa: F401
    except ImportError:
        remedy = "pip install 'primus-mcp[ilp]'"
        raise InputError("its order is solved for by HiGHS, which is not installed", where="seaailab-ilp", remedy=remedy) from None


def shorter_order(micro_batches: int, costs: PlannerCosts, step_s: float) -> Found:
    """An order shorter than `step_s` by more than the gap, or the proof that there is none, as far as the nodes last.

    Times are scaled to a mean of 1, so that the solver's absolute tolerances mean the same in every unit. Raises InputError where HiGHS
    is not installed.
    """
    scale = sum(costs.forward + costs.backward + costs.weight) / (3 * len(costs.forward))
    scaled = replace(
        costs,
        forward=tuple(time / scale for time in costs.forward),
        backward=tuple(time / scale for time in costs.backward),
        weight=tuple(time / scale for time in costs.weight),
        hop=costs.hop / scale,
    )
    cutoff = step_s / scale * (1 - GAP / 2)
    program = build_program(micro_batches, scaled, cutoff)
    if program.lower.max() >= cutoff:  # the closed bound already proves it
        return Found(rows=None, bound_s=step_s, nodes=0)
    ends, bound, nodes = _run(program)
    rows = None if ends is None else _rows(program, ends, len(costs.forward), micro_batches)
    return Found(rows=rows, bound_s=min(step_s, bound * scale), nodes=nodes)


def _run(program: Program) -> tuple[NDArray[np.float64] | None, float, int]:
    """(solution or None, proven bound, nodes). An infeasible program proves its cut-off."""
    import highspy

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    for option, value in (("threads", 1), ("parallel", "off"), ("random_seed", 0), ("mip_rel_gap", GAP), ("mip_max_nodes", MAX_NODES)):
        solver.setOptionValue(option, value)
    linear = highspy.HighsLp()
    width, height = len(program.objective), len(program.row_lower)
    linear.num_col_, linear.num_row_ = width, height
    linear.col_cost_, linear.col_lower_, linear.col_upper_ = program.objective, program.lower, program.upper
    linear.row_lower_, linear.row_upper_ = program.row_lower, np.full(height, highspy.kHighsInf)
    matrix = linear.a_matrix_
    matrix.format_, matrix.start_, matrix.index_, matrix.value_ = (
        highspy.MatrixFormat.kRowwise,
        program.starts,
        program.columns,
        program.values,
    )
    kinds = highspy.HighsVarType
    linear.integrality_ = [kinds.kContinuous] * (width - program.binaries) + [kinds.kInteger] * program.binaries
    solver.passModel(linear)
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    cutoff = float(program.upper[0])
    if status == highspy.HighsModelStatus.kInfeasible:
        return None, cutoff, int(info.mip_node_count)
    bound = max(float(program.lower.max()), min(cutoff, float(info.mip_dual_bound)))
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None, bound, int(info.mip_node_count)
    return np.array(solver.getSolution().col_value), bound, int(info.mip_node_count)


def _rows(program: Program, ends: NDArray[np.float64], pp: int, micro_batches: int) -> tuple[Row, ...]:
    """Tasks of every rank by their ends; a task of no duration follows what it ends with."""
    rows = []
    for rank in range(pp):
        tasks = [Task(kind, i, 0) for kind in KINDS for i in range(micro_batches)]
        rows.append(tuple(sorted(tasks, key=lambda t, r=rank: ends[program.ends[t.kind, r, t.micro_batch]])))  # type: ignore[misc]
    return tuple(rows)
