"""The adapted baseline: the nearest configuration to the workload's own that the target cluster can run at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import log2

from primus_mcp.errors import InputError, NothingLegalError
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import Workload
from primus_mcp.space.axes import cp_values, ep_values, pp_values, tp_values, vpp_values
from primus_mcp.space.knobs import MAX_BATCH, Fp8Choice, TrialConfig, knob_text
from primus_mcp.space.legality import check_legality
from primus_mcp.space.overlay import overlay_document
from primus_mcp.space.rules.moe import runs_turbo
from primus_mcp.space.trainer_keys import resolve, trainer_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedBaseline:
    """`workload` is the one that trials inherit from; `trial` says what was changed (nothing: the workload's own baseline runs), `lines`
    why, one line each.
    """

    workload: Workload
    trial: TrialConfig
    lines: tuple[str, ...]


def rebase(workload: Workload, trial: TrialConfig) -> Workload:
    """The workload with a trial made its baseline: arguments, document and baseline change together."""
    arguments = {**workload.arguments, **trainer_keys(trial, workload)}
    return replace(workload, arguments=arguments, baseline=resolve(workload, trial), document=overlay_document(workload, trial))


def _distance(own: TrainingConfig, sizes: tuple[int, ...]) -> float:
    """Doublings away from the workload's TP, PP, EP, CP, MBS and VPP; MBS and VPP count half, they do not move weights between GPUs."""
    weights = (1, 1, 1, 1, 0.5, 0.5)
    before = (own.tp, own.pp, own.ep, own.cp, own.mbs, own.vpp)
    return sum(weight * abs(log2(a / b)) for weight, a, b in zip(weights, sizes, before, strict=True))


def _candidates(workload: Workload, cluster: Cluster, gbs: int | None) -> list[tuple[int, ...]]:
    """(TP, PP, EP, CP, MBS, VPP) that divide the world and, with a batch given, the batch; nearest first.

    MBS is the workload's own or a smaller power of two.
    """
    arch, own, world = workload.architecture, workload.baseline, cluster.world_size
    smaller = sorted({own.mbs, *(2**n for n in range(own.mbs.bit_length()))})
    found = []
    for tp, pp, ep, cp in product(tp_values(arch, cluster), pp_values(arch, cluster), ep_values(arch, cluster), cp_values(arch, cluster)):
        if world % (tp * pp * cp) or world % (ep * pp):
            continue
        dp = world // (tp * pp * cp)
        depths = {own.vpp if pp > 1 else 1, 1} & set(vpp_values(arch, pp)) | {1}
        for mbs, vpp in product(smaller, sorted(depths)):
            if gbs is None or gbs % (mbs * dp) == 0:
                found.append((tp, pp, ep, cp, mbs, vpp))
    return sorted(found, key=lambda sizes: (_distance(own, sizes), sizes))


def _whole(gbs: int, unit: int) -> int:
    """The batch rounded up to whole micro-batches on every rank."""
    return -(-gbs // unit) * unit


def _trial(own: TrainingConfig, sizes: tuple[int, ...], gbs: int, cluster: Cluster, *, moe: bool) -> TrialConfig:
    tp, pp, ep, cp, mbs, vpp = sizes
    dp = cluster.world_size // (tp * pp * cp)
    return TrialConfig(
        tp=tp if tp != own.tp else None,
        pp=pp,
        ep=ep if ep != own.ep else None,
        expert_tensor_parallel_size=1
        if moe and own.etp > 1 and (cluster.world_size % (own.etp * ep * pp) or own.etp not in (1, tp))
        else None,
        cp=cp if cp != own.cp else None,
        mbs=mbs if mbs != own.mbs else None,
        vpp=vpp if vpp != own.vpp else None,
        gbs=_whole(gbs, mbs * dp) if gbs != own.gbs or gbs % (mbs * dp) else None,
    )


def _capable(own: TrainingConfig, trial: TrialConfig, cluster: Cluster) -> TrialConfig:
    """The trial without what no configuration on this GPU can run: FP8 or its mxfp8 recipe, and what Primus-Turbo brings to experts."""
    gpu, levers = cluster.gpu, dict[str, object]()
    if own.fp8 is not None and "fp8" not in gpu.peak_flops:
        levers |= {"fp8": "none"}
    elif own.fp8 is not None and own.fp8_recipe == "mxfp8" and not gpu.supports_mxfp8:
        levers |= {"fp8": "hybrid"}
    if not runs_turbo(gpu):
        levers |= {"use_turbo_deepep": False} if own.dispatcher == "deepep" else {}
        levers |= {"sync_free_stage": 0} if own.sync_free_stage > 0 else {}
    return trial.model_copy(update=levers)


def _released(own: TrainingConfig, trial: TrialConfig) -> TrialConfig:
    """The trial without the workload's levers that tie it to a topology: DeepEP with its stages, FSDP2, a schedule of its own."""
    levers: dict[str, object] = {}
    if own.dispatcher == "deepep":
        stage = trial.sync_free_stage if trial.sync_free_stage is not None else min(own.sync_free_stage, 1)
        levers |= {"use_turbo_deepep": False, "sync_free_stage": stage}
    if own.use_torch_fsdp2:
        levers |= {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    if own.schedule not in ("1f1b", "interleaved"):
        levers |= {"pp_schedule": "auto"}
    return trial.model_copy(update=levers)


def _nearest(workload: Workload, cluster: Cluster, gbs: int, *, keep: bool) -> TrialConfig | None:
    """`_nearest_with` the workload's levers, else without those that tie it to a topology, at last in other precisions: a recipe may fit
    no GEMM of the model on this GPU, or run nowhere there (rules F13, F21). A search offers latent attention no delayed scaling.
    """
    recipes: list[Fp8Choice] = [] if workload.baseline.fp8 is None else ["delayed", "none"]
    if workload.architecture.latent_attention is not None:
        recipes = recipes[1:]
    for fp8 in (None, *recipes):
        for release in (False, True):
            if (trial := _nearest_with(workload, cluster, gbs, keep=keep, release=release, fp8=fp8)) is not None:
                return trial
    return None


def _nearest_with(
    workload: Workload, cluster: Cluster, gbs: int, *, keep: bool, release: bool, fp8: Fp8Choice | None
) -> TrialConfig | None:
    """Nearest legal trial with that batch exactly (`keep`), or with the batch rounded up to whole micro-batches.

    Within the search's policy if any candidate is, else by the trainer's rules alone.
    """
    own, moe = workload.baseline, workload.architecture.is_moe
    fallback: TrialConfig | None = None
    for sizes in _candidates(workload, cluster, gbs if keep else None):
        tp, pp, _, cp, mbs, _ = sizes
        if not keep and _whole(gbs, mbs * (cluster.world_size // (tp * pp * cp))) > MAX_BATCH:
            continue
        trial = _capable(own, _trial(own, sizes, gbs, cluster, moe=moe), cluster)
        trial = trial if fp8 is None else trial.model_copy(update={"fp8": fp8})
        if release and trial == (trial := _released(own, trial)):
            return None
        unmoved = trial.model_copy(update={"pp": None})
        for choice in (unmoved, trial) if trial.pp == own.pp else (trial,):
            verdict = check_legality(workload, choice, cluster)
            if all(violation.rule == "gbs-factors" for violation in verdict.violations):
                return choice
            if fallback is None and all(violation.kind == "policy" for violation in verdict.violations):
                fallback = choice
    return fallback


def source_gpus(workload: Workload, cluster: Cluster) -> int:
    """GPUs that the workload was written for, as far as its file tells: its smallest replica, rounded up to whole nodes."""
    own = workload.baseline
    replica = own.tp * own.pp * own.cp
    if workload.architecture.is_moe:
        replica = max(replica, own.etp * own.pp * own.ep)
    nodes = -(-replica // cluster.gpus_per_node)
    return nodes * cluster.gpus_per_node


def adapt_baseline(workload: Workload, cluster: Cluster, *, gbs: int | None = None, scale_gbs: bool = False) -> AdaptedBaseline:
    """The workload itself where its baseline runs on the cluster, else the nearest legal baseline, with one line a change.

    TP, PP and EP move to the nearest legal values, MBS is only lowered; the batch is kept where any legal configuration has it, else
    scaled by target GPUs / source GPUs. `gbs` sets the batch, `scale_gbs` scales it at once.
    Raises NothingLegalError when nothing is legal.
    """
    own, world = workload.baseline, cluster.world_size
    verdict = check_legality(workload, TrialConfig(), cluster, allow_policy=True)
    source = source_gpus(workload, cluster)
    scaled = max(1, round(own.gbs * world / source))
    wanted = gbs if gbs is not None else scaled if scale_gbs else own.gbs
    if wanted != own.gbs and not 1 <= wanted <= MAX_BATCH:
        raise InputError(f"is {wanted}", where="--gbs", remedy=f"a batch has 1 to {MAX_BATCH} sequences")
    if verdict.legal and wanted == own.gbs:
        return AdaptedBaseline(workload=workload, trial=TrialConfig(), lines=())
    trial = _nearest(workload, cluster, wanted, keep=True)
    lines = [] if verdict.legal else [f"the workload's baseline cannot run on {world} GPUs: {verdict.reason}"]
    if trial is None and gbs is not None:
        raise NothingLegalError(
            f"no legal configuration on {world} GPUs has a batch of {gbs}", where="--gbs", remedy="choose another GBS, or --scale-gbs"
        )
    if trial is None:
        trial = _nearest(workload, cluster, scaled, keep=False)
        lines.append(f"no legal configuration keeps GBS {own.gbs}: it is scaled by {world} / {source} GPUs")
    if trial is None:
        raise NothingLegalError(
            f"no legal configuration on {world} GPUs ({verdict.reason})", where=workload.name, remedy="use another cluster size"
        )
    changed = ", ".join(f"{name} {knob_text(value)}" for name, value in trial.model_dump(exclude_none=True).items())
    lines.append(f"adapted baseline: {changed or 'nothing changed'}")
    return AdaptedBaseline(workload=rebase(workload, trial), trial=trial, lines=tuple(lines))
