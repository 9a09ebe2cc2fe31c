"""Tools that show what may be tried and on what: axes, architecture, cluster, and what a configuration resolves to."""

from __future__ import annotations

from typing import Any

from primus_mcp.evaluation.digest import plain
from primus_mcp.projection.parameters import active_parameters, total_parameters
from primus_mcp.space.axes import legal_axes
from primus_mcp.space.knobs import KNOBS, knob_values
from primus_mcp.space.overlay import overlay_yaml
from primus_mcp.space.trainer_keys import trainer_keys
from primus_mcp.tools.configuration import ConfigJson, baseline_knobs, shown_knobs, trial_of
from primus_mcp.tools.registry import ToolContext, tool
from primus_mcp.tools.results import ArchitectureFacts, Axes, ClusterFacts, Described
from primus_mcp.units import GB_PER_S, bytes_to_gb

LONG_LIST = 12


def _values_text(values: tuple[Any, ...]) -> Any:
    """The values as a list, or `0 to 56` where they are a long run of integers."""
    whole = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(values) > LONG_LIST and len(whole) == len(values) and whole == list(range(whole[0], whole[0] + len(whole))):
        return f"{whole[0]} to {whole[-1]}"
    return list(values)


@tool("Legal values of every knob", toolset="inspect", read_only=True)
def get_legal_axes(context: ToolContext) -> Axes:
    """Every knob of config_json: what it does, its legal values taken alone, the baseline's, and its rule."""
    session = context.session
    toggles = session.target.axes.model_dump()
    values = legal_axes(session.workload, session.target.cluster, axes=toggles, pins=session.pins)
    own = knob_values(session.workload.baseline)
    knobs: dict[str, dict[str, Any]] = {}
    pinned: dict[str, Any] = {}
    for name, knob in KNOBS.items():
        if knob.moe_only and not session.workload.architecture.is_moe:
            continue
        if len(values[name]) == 1:
            pinned[name] = values[name][0]
            continue
        knobs[name] = {"values": _values_text(values[name]), "baseline": own[name], "does": knob.description, "rule": knob.legal}
    return Axes(
        cluster=session.target.cluster.name,
        world_size=session.target.cluster.world_size,
        knobs=knobs,
        pinned=pinned,
        next="evaluate_simulate with one change at a time, or seed_trials for the search's own plan",
    )


@tool("The model that would run", toolset="inspect", read_only=True)
def get_architecture(context: ToolContext) -> ArchitectureFacts:
    """The resolved model, its parameters and baseline, and where it differs from its name."""
    workload = context.session.workload
    arch = workload.architecture
    facts = plain(arch)
    moe_layers, windowed = sum(arch.moe_layers), sum(arch.windowed_layers)
    facts |= {"moe_layers": moe_layers, "windowed_layers": windowed}
    return ArchitectureFacts(
        workload=workload.name,
        parameters=total_parameters(arch),
        active_parameters=active_parameters(arch),
        architecture={name: value for name, value in facts.items() if value is not None},
        baseline=baseline_knobs(context.session),
        findings=[finding.text for finding in workload.findings],
    )


@tool("The target cluster", toolset="inspect", read_only=True)
def get_cluster(context: ToolContext) -> ClusterFacts:
    """Nodes, GPUs, usable memory and its cap, links."""
    target = context.session.target
    cluster, network = target.cluster, target.cluster.network
    return ClusterFacts(
        name=cluster.name,
        num_nodes=cluster.num_nodes,
        gpus_per_node=cluster.gpus_per_node,
        world_size=cluster.world_size,
        gpu=cluster.gpu.name,
        gpu_arch=cluster.gpu.arch,
        usable_hbm_gb=bytes_to_gb(cluster.hbm_bytes),
        memory_safety_margin=cluster.memory_safety_margin,
        memory_cap_gb=bytes_to_gb(cluster.memory_cap_bytes),
        profile=cluster.profile.name,
        profile_date=str(cluster.profile.date),
        node_topology=network.node_topology,
        node_bandwidth_gb_per_s=network.node_bandwidth_bytes_per_s / GB_PER_S,
        nic_bandwidth_gb_per_s=network.nic_bandwidth_bytes_per_s / GB_PER_S,
        nics_per_node=network.nics_per_node,
        has_gpu=target.benchmark_host.has_gpu,
        axes_off=[name for name, on in target.axes.model_dump().items() if not on],
        warnings=list(target.warnings),
        next="set_cluster asks the same of another size or GPU",
    )


@tool("What a configuration resolves to", toolset="inspect", read_only=True)
def describe_config(context: ToolContext, config_json: ConfigJson = None) -> Described:
    """Resolve without pricing: every broken rule, all knobs, trainer keys, the workload YAML."""
    session = context.session
    trial = trial_of(session, config_json)
    legality = session.evaluator.rules.check(trial)
    own = baseline_knobs(session)
    resolved = shown_knobs(legality.config, moe=session.workload.architecture.is_moe) if legality.config is not None else None
    return Described(
        legal=legality.legal,
        reason=legality.reason,
        violations=[f"{found.rule} ({found.kind}): {found.message} [{found.source}]" for found in legality.violations],
        resolved=resolved,
        changes={name: value for name, value in (resolved or {}).items() if value != own.get(name)},
        trainer_keys=trainer_keys(trial, session.workload) if legality.config is not None else {},
        overlay=overlay_yaml(session.workload, trial) if legality.legal else None,
        next="evaluate_simulate prices it" if legality.legal else "change what reason names",
    )
