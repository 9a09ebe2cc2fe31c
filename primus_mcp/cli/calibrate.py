"""`primus-mcp calibrate`: fit a small correction from your own measured runs, or from layers measured on this host."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from primus_mcp.errors import InputError, PrimusMcpError

if TYPE_CHECKING:
    from primus_mcp.measurement.calibration import Calibration, Point
    from primus_mcp.validation.rows import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Rows or residuals to fit, where the calibration goes."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--rows", type=Path, metavar="FILE", help="your measured runs as JSON Lines (see `primus-mcp validate`)")
    source.add_argument(
        "--residuals",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="FILE",
        help="layers measured before, of an out-dir's residuals.jsonl (without FILE: all of this user's)",
    )
    parser.add_argument("--gpu", metavar="NAME", help="only runs on this GPU (needed when the file holds several)")
    parser.add_argument("--backend", choices=("auto", "roofline", "origami"), default="auto", help="GEMM model")
    parser.add_argument("--profile", metavar="NAME", help="software profile instead of the one of the row's date")
    parser.add_argument("--save", type=Path, metavar="JSON", help="write the calibration (default: printed only, nothing uses it)")
    parser.add_argument("--json", action="store_true", help="print the calibration as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the multipliers, the error before and after, and the band."""
    from primus_mcp.cli.codes import EXIT_OK
    from primus_mcp.measurement.calibration import Source, calibrate, save_calibration
    from primus_mcp.measurement.residuals import cache_file, points_of_residuals, read_residuals
    from primus_mcp.validation.rows import read_rows
    from primus_mcp.version import engine_version

    skipped: list[tuple[str, str]] = []
    if arguments.rows is not None:
        points, skipped, gpu, profile = points_of(read_rows(arguments.rows), arguments.gpu, arguments.backend, arguments.profile)
    else:
        path = arguments.residuals if arguments.residuals != Path() else cache_file()
        points, gpu, profile = points_of_residuals(read_residuals(path), arguments.gpu, arguments.profile)
        if not points:
            problem = f"{path} holds no layer measured with the target's own kernels under this engine"
            raise InputError(problem, where="--residuals", remedy="measure with `primus-mcp benchmark` on the GPU")
    source: Source = "runs" if arguments.rows is not None else "layers"
    found = calibrate(points, gpu=gpu, profile=profile, engine=engine_version(), source=source)
    if arguments.save is not None:
        save_calibration(found, arguments.save)
    if arguments.json:
        print(json.dumps(found.model_dump(mode="json"), indent=2))
    else:
        _print(found, points, skipped)
    return EXIT_OK


def points_of(
    rows: Sequence[Row], gpu: str | None, backend: str, profile: str | None
) -> tuple[list[Point], list[tuple[str, str]], str, str]:
    """(points, skipped rows with their reason, GPU, profile). Raises InputError where GPUs or profiles would be mixed."""
    from primus_mcp.measurement.calibration import Point, terms_of
    from primus_mcp.projection.performance import project_performance
    from primus_mcp.validation.resolve import resolve

    points: list[Point] = []
    skipped: list[tuple[str, str]] = []
    machines: set[tuple[str, str]] = set()
    for row in rows:
        measured = row.tokens_per_s_per_gpu
        if measured is None:
            skipped.append((row.id, "no measured throughput"))
            continue
        try:
            case = resolve(row, row.flags or "", profile=profile)
            if gpu is not None and case.cluster.gpu.name != gpu:
                continue
            found = project_performance(case.arch, case.config, case.cluster, gemm_backend=backend)  # type: ignore[arg-type]
        except PrimusMcpError as error:
            skipped.append((row.id, str(error)))
            continue
        machines.add((case.cluster.gpu.name, case.cluster.profile.name))
        seconds = found.iteration_s * found.tokens_per_s_per_gpu / measured
        points.append(Point(name=row.id, measured_s=seconds, terms_s=terms_of(found.time_breakdown_s)))
    if len(machines) > 1:
        names = ", ".join(f"{name} ({dated})" for name, dated in sorted(machines))
        raise InputError(f"the runs are of several machines: {names}", where="--rows", remedy="choose one with --gpu and --profile")
    name, dated = next(iter(machines), ("", ""))
    return points, skipped, name, dated


def _print(found: Calibration, points: Sequence[Point], skipped: Sequence[tuple[str, str]]) -> None:
    import math

    print(f"{found.points} {found.source} on {found.gpu} ({found.profile}), engine {found.engine}")
    for term, value in found.multipliers.items():
        share = sum(point.terms_s[term] for point in points) / sum(point.projected_s for point in points)
        print(f"{term:20} x {value:.3f}   {share:6.1%} of the projected time")
    print(f"median error        {found.error_before:.1%} before, {found.error_after:.1%} after (on what it was fitted to)")
    if found.log_band is None:
        print("confidence          too few for a band (3 are needed)")
    else:
        print(
            f"confidence          {found.coverage:.0%} of {found.source} left out of the fit were within {math.expm1(found.log_band):.1%}"
        )
    for name, reason in skipped:
        print(f"- not used: {name}: {reason}")
