"""Choice of the GEMM backend, one instance per (cluster, backend) so that shapes stay memoised between trials."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

from primus_mcp.errors import InputError
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.projection.ops.gemm import GemmModel, RooflineGemm

GemmBackend = Literal["auto", "roofline", "origami"]


@lru_cache(maxsize=1)
def origami_is_installed() -> bool:
    """Whether the optional package `rocm-origami` can be imported."""
    return find_spec("origami") is not None


def origami_knows(arch: str) -> bool:
    """Whether the installed Origami has a model of the GPU architecture, such as gfx942."""
    return origami_is_installed() and hasattr(import_module("origami").architecture_t, arch)


@lru_cache(maxsize=64)
def gemm_model(cluster: Cluster, backend: GemmBackend = "auto") -> GemmModel:
    """The backend that prices GEMMs. auto: Origami where it is installed and knows the GPU, else roofline.

    Raises InputError when Origami is asked for by name and cannot serve.
    """
    if backend == "roofline":
        return RooflineGemm(cluster)
    if backend == "origami" and not origami_is_installed():
        raise InputError(
            "origami is not installed", where="gemm backend", remedy="pip install 'primus-mcp[origami]' (make origami), or use roofline"
        )
    known = origami_knows(cluster.gpu.arch)
    if backend == "origami" and not known:
        raise InputError(f"origami has no model of {cluster.gpu.name}", where="gemm backend", remedy="use roofline")
    if not known:
        return RooflineGemm(cluster)
    from primus_mcp.projection.ops.origami import OrigamiGemm  # optional package, imported where it is used

    return OrigamiGemm(cluster)
