"""Prices cases under other values of catalogue constants than the shipped ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from primus_mcp.inputs.constants import time_values
from primus_mcp.inputs.hardware import Cluster, SoftwareProfile
from primus_mcp.inputs.hardware_files import catalogue_document, read_profile
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.projection.performance import project_performance
from primus_mcp.validation.constants import TIME_FILE
from primus_mcp.validation.resolve import Case

Changes = Mapping[tuple[str, tuple[str, ...]], float]
"""(file of the catalogue, keys that lead to a figure) -> value."""


def _with(document: Mapping[str, Any], changes: Mapping[tuple[str, ...], float]) -> dict[str, Any]:
    copied = deepcopy(dict(document))
    for path, value in changes.items():
        node: Any = copied
        for key in path:
            node = node[key]
        node["value"] = value
    return copied


class Pricer:
    """Tokens/s/GPU of cases. A set of changes has profiles of its own names, so that memoised costs of other sets never serve it."""

    def __init__(self, backend: GemmBackend) -> None:
        self._backend = backend
        self._sets = 0

    def tokens_per_s(self, case: Case) -> float:
        """With the shipped constants."""
        return self._speed(case, case.cluster)

    def _speed(self, case: Case, cluster: Cluster) -> float:
        return project_performance(case.arch, case.config, cluster, gemm_backend=self._backend).tokens_per_s_per_gpu

    def speeds(self, cases: Sequence[Case], changes: Changes) -> list[float]:
        """With the changes."""
        if not changes:
            return [self.tokens_per_s(case) for case in cases]
        self._sets += 1
        engine = {path[-1]: value for (file, path), value in changes.items() if file == TIME_FILE}
        files = {file for file, _ in changes if file != TIME_FILE}
        documents = {file: _with(catalogue_document(file), {p: v for (f, p), v in changes.items() if f == file}) for file in files}
        profiles: dict[tuple[str, str], SoftwareProfile] = {}
        with time_values(engine):
            return [self._speed(case, self._cluster(case.cluster, documents, profiles, engine=bool(engine))) for case in cases]

    def _cluster(
        self,
        cluster: Cluster,
        documents: Mapping[str, Mapping[str, Any]],
        profiles: dict[tuple[str, str], SoftwareProfile],
        *,
        engine: bool,
    ) -> Cluster:
        key = (cluster.gpu.name, cluster.profile.name)
        if key not in profiles:
            gpu = read_profile(cluster.gpu.name, catalogue_document(cluster.gpu.name), changed=documents)
            profile = gpu.profiles[cluster.profile.name]
            same = profile == cluster.profile and not engine
            profiles[key] = cluster.profile if same else replace(profile, name=f"{profile.name} changed {id(self)}.{self._sets}")
        profile = profiles[key]
        return cluster if profile is cluster.profile else replace(cluster, profile=profile)
