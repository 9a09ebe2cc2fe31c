"""Tools over the catalogue: models that can be opened by name, and GPUs."""

from __future__ import annotations

from primus_mcp.inputs.hardware_files import gpu_aliases, gpu_names, gpu_profile
from primus_mcp.inputs.published import published_models
from primus_mcp.projection.parameters import active_parameters, total_parameters
from primus_mcp.tools.registry import tool
from primus_mcp.tools.results import Gpus, Models
from primus_mcp.units import BILLION, TFLOPS, bytes_to_gb


@tool("Models of the catalogue", toolset="session", scope="none", read_only=True)
def list_models() -> Models:
    """Models that open_session takes by name."""
    rows = []
    for name, model in published_models().items():
        arch = model.architecture
        experts = f"{arch.experts.num_experts} experts, top {arch.experts.top_k}" if arch.experts else "dense"
        rows.append(
            {
                "name": name,
                "parameters_billion": total_parameters(arch) / BILLION,
                "active_billion": active_parameters(arch) / BILLION,
                "layers": arch.num_layers,
                "kind": experts,
                "attention": "MLA" if arch.latent_attention else "MHA" if arch.num_query_groups == arch.num_attention_heads else "GQA",
                "hf_id": model.hf_id,
            }
        )
    return Models(models=rows, next="open_session(workload=NAME, gpu=..., nodes=...)")


@tool("GPUs of the catalogue", toolset="session", scope="none", read_only=True)
def list_gpus() -> Gpus:
    """GPUs that open_session and set_cluster take by name."""
    rows = []
    for name in gpu_names():
        gpu = gpu_profile(name)
        profile = gpu.profiles[gpu.default_profile]
        rows.append(
            {
                "name": name,
                "arch": gpu.arch,
                "usable_hbm_gb": bytes_to_gb(gpu.hbm_bytes),
                "sustained_bf16_tflops": (rate / TFLOPS if (rate := profile.sustained_flops.get("bf16")) is not None else None),
                "profile": profile.name,
                "profile_date": str(profile.date),
                "also_called": sorted(alias for alias, of in gpu_aliases().items() if of == name and alias != name),
            }
        )
    return Gpus(gpus=rows, next="open_session(workload=..., gpu=NAME, nodes=N)")
