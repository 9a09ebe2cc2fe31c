"""AMD's analytical GEMM model (`rocm-origami`, optional), turned from its boost clock to the rate that a GPU sustains."""

from __future__ import annotations

import importlib
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.hardware import Cluster, Precision
from primus_mcp.projection.ops.gemm import REFERENCE_SIDE, RooflineGemm, memoised, peak_flops, sustained_flops
from primus_mcp.units import GHZ

Tile = tuple[int, int, int]

# Macro tiles (m, n, k) offered to the selector. FP8 needs tile K 128 and 256: with K 64 alone it is predicted no faster than BF16.
_WIDE_SIDES = ((256, 256), (256, 128), (128, 256), (128, 128), (256, 224), (224, 256), (256, 192), (192, 256))
_NARROW_SIDES = ((64, 64), (64, 128), (128, 64), (64, 256), (256, 64))
_TILE_K: dict[Precision, tuple[int, ...]] = {"bf16": (32, 64, 128), "fp8": (64, 128, 256)}
_OCCUPANCIES = (1, 2)
_DATA_TYPES: dict[Precision, str] = {"bf16": "bf16", "fp8": "f8"}
_KHZ_PER_HZ = 1e-3


def tile_set(precision: Precision) -> tuple[Tile, ...]:
    """Macro tiles for a data type: every side pair with every tile K that suits it."""
    return tuple((m, n, k) for k in _TILE_K[precision] for m, n in _WIDE_SIDES + _NARROW_SIDES)


class OrigamiGemm:
    """t = (max(t_origami, F/peak) R / S), R = Origami's own rate at 8192^3 (at most the peak), S = the sustained rate.

    So that 8192^3 takes exactly the sustained rate and other shapes keep Origami's relative cost. fp4 has no Origami data type here: it is
    priced by the roofline. Equal products run together take no longer than one after another: Origami's batches lose up to a third where
    measured grouped GEMMs (MI355X, 16 products of DeepSeek-V3 shapes) lose nothing. Origami assumes a bf16 result; wider results
    (accumulation into fp32) join by the roofline's p-norm.
    Raises InputError for a GPU that Origami does not know. Known error: see docs/accuracy.md (10% median on tuned MI355X bf16 shapes).
    """

    name = "origami"

    def __init__(self, cluster: Cluster, tiles: dict[Precision, tuple[Tile, ...]] | None = None) -> None:
        self._cluster = cluster
        self._roofline = RooflineGemm(cluster)
        self._origami: Any = importlib.import_module("origami")
        gpu = cluster.gpu
        if not hasattr(self._origami.architecture_t, gpu.arch):
            raise InputError(f"origami has no model of {gpu.name} ({gpu.arch})", where="gemm backend", remedy="use roofline")
        self._hardware: Any = self._origami.get_hardware_for_arch(
            getattr(self._origami.architecture_t, gpu.arch),
            gpu.compute_units,
            gpu.shared_memory_bytes,
            gpu.l2_bytes,
            round(gpu.boost_clock_hz * _KHZ_PER_HZ),
        )
        self._tiles = tiles or {precision: tile_set(precision) for precision in _DATA_TYPES}
        self._configs: dict[Precision, list[Any]] = {}
        self._corrections: dict[Precision, float] = {}
        self._seconds = memoised(self._compute)

    def seconds(self, m: float, n: float, k: float, precision: Precision, *, batch: int = 1, output_bytes: float = 2.0) -> float:
        """See GemmModel."""
        return self._seconds(m, n, k, precision, batch, output_bytes)

    def _candidates(self, precision: Precision) -> list[Any]:
        if precision not in self._configs:
            origami = self._origami
            instruction = self._hardware.get_recommended_matrix_instruction(origami.string_to_datatype(_DATA_TYPES[precision]))
            configs = []
            for tile in self._tiles[precision]:
                for occupancy in _OCCUPANCIES:
                    config = origami.config_t()
                    config.mt, config.mi, config.occupancy = origami.dim3_t(*tile), instruction, occupancy
                    configs.append(config)
            self._configs[precision] = configs
        return self._configs[precision]

    def raw_seconds(self, m: int, n: int, k: int, precision: Precision, batch: int = 1) -> float:
        """Origami's own time at the boost clock, best tile of the set; not what a loaded GPU takes."""
        origami = self._origami
        problem = origami.problem_t()
        problem.size, problem.batch = origami.dim3_t(m, n, k), batch
        problem.a_transpose, problem.b_transpose = origami.transpose_t.T, origami.transpose_t.N
        operand = origami.string_to_datatype(_DATA_TYPES[precision])
        problem.a_dtype = problem.b_dtype = problem.mi_dtype = operand
        problem.c_dtype = problem.d_dtype = origami.string_to_datatype("bf16")
        problem.a_mx_block_size = problem.b_mx_block_size = 0
        best = origami.select_config(problem, self._hardware, self._candidates(precision))
        return float(best.latency / (self._hardware.compute_clock_ghz * GHZ))

    def _at_most_peak_s(self, m: int, n: int, k: int, precision: Precision, batch: int) -> float:
        boost_flops = peak_flops(self._cluster, precision) / self._cluster.clock_ratio
        floor_s = 2 * m * n * k * batch / boost_flops
        return max(self.raw_seconds(m, n, k, precision, batch), floor_s)

    def _correction(self, precision: Precision) -> float:
        if precision not in self._corrections:
            side = REFERENCE_SIDE
            own_flops = 2 * side**3 / self._at_most_peak_s(side, side, side, precision, 1)
            self._corrections[precision] = own_flops / sustained_flops(self._cluster, precision)
        return self._corrections[precision]

    def _compute(self, m: float, n: float, k: float, precision: Precision, batch: int, output_bytes: float) -> float:
        if min(m, n, k) <= 0 or batch <= 0:
            return 0.0
        if precision not in _DATA_TYPES:
            return self._roofline.seconds(m, n, k, precision, batch=batch, output_bytes=output_bytes)
        rows, columns, depth = (max(1, round(side)) for side in (m, n, k))
        raw_s = self._at_most_peak_s(rows, columns, depth, precision, batch)
        if batch > 1:
            raw_s = min(raw_s, batch * self._at_most_peak_s(rows, columns, depth, precision, 1))
        product_s = raw_s * self._correction(precision)
        return self._roofline.with_wider_result(product_s, m * n * batch, output_bytes)
