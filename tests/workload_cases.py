"""Primus pretrain files that the tests write, and evaluators of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from primus_mcp.evaluation.evaluators import Evaluator, Rules, make_evaluator
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.workload import Workload, read_workload

TWO_NODES: dict[str, Any] = {"target_cluster": {"name": "two_nodes", "num_nodes": 2, "gpu_arch": "mi300x"}}


def workload_text(model: str, **overrides: Any) -> str:
    """A pretrain file of a catalogue model on mock data: 4096 tokens a sequence, 256 sequences an iteration, unless overridden."""
    run = {"micro_batch_size": 1, "global_batch_size": 256, "seq_length": 4096, "max_position_embeddings": 4096, "mock_data": True}
    module = {"framework": "megatron", "config": "pre_trainer.yaml", "model": f"{model}.yaml", "overrides": run | overrides}
    names = {"work_group": "test", "user_name": "test", "exp_name": "test", "workspace": "./output"}
    return yaml.safe_dump({**names, "modules": {"pre_trainer": module}}, sort_keys=False)


def written_workload(folder: Path, model: str, **overrides: Any) -> Workload:
    """The same, written to `workload.yaml` of an existing folder and read from there."""
    path = folder / "workload.yaml"
    path.write_text(workload_text(model, **overrides), encoding="utf-8")
    return read_workload(path, environment={})


def reread(folder: Path, built: Workload) -> Workload:
    """A built workload written out as a file of its own and read from there."""
    path = folder / "workload.yaml"
    path.write_text(yaml.safe_dump(dict(built.document)), encoding="utf-8")
    return read_workload(path, environment={})


def evaluator_of(folder: Path, model: str, gpu: str = "mi300x", nodes: int = 1, **overrides: Any) -> Evaluator:
    """A full evaluator of the same on nodes of eight GPUs, by roofline."""
    workload, cluster = written_workload(folder, model, **overrides), make_cluster(gpu, num_nodes=nodes)
    return make_evaluator(Rules(workload=workload, cluster=cluster, axes={}, pins={}), gemm_backend="roofline")
