"""What each constant does to configurations over the range in which the catalogue holds it credible.

Priced in a process of its own: constants of the engine are process-wide, and costs that were memoised under them must not be met again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from primus_mcp.errors import PrimusMcpError
from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.hardware_files import catalogue_document, gpu_names
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.projection.ops.backend import GemmBackend
from primus_mcp.search.constant_words import constant_text
from primus_mcp.search.workers import begin_worker, interrupts_held, workers_alive
from primus_mcp.validation.constants import TIME_FILE
from primus_mcp.validation.resolve import Case
from primus_mcp.validation.trial_constants import Pricer

SHOWN = 10
"""Constants with the largest effect on the centre; the others are left out."""
LAUNCHES = "launches"
"""Counts of kernels, which are taken low and high together: each alone is small, and they were counted in the same way."""
_MAX_DERIVATIONS = 5
_MEMOISED = ("primus_mcp.projection.layers", "primus_mcp.projection.ops", "primus_mcp.projection.performance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One constant, or all kernel counts. `paths`: (file of the catalogue, keys, low, high) of each."""

    name: str
    text: str
    paths: tuple[tuple[str, tuple[str, ...], float, float], ...]

    def at(self, *, high: bool) -> dict[tuple[str, tuple[str, ...]], float]:
        """The changes of one end."""
        return {(file, keys): above if high else below for file, keys, below, above in self.paths}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Tokens/s/GPU of every configuration at the low and at the high end."""

    name: str
    text: str
    low: tuple[float, ...]
    high: tuple[float, ...]


def _ranged(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float, float]]:
    for place, entry in _entries(node, path):
        low, high = entry.get("range", (0.0, 0.0))
        if low < high and isinstance(entry.get("value"), int | float):
            yield place, float(low), float(high)


def _entries(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(keys, entry) of every figure below a node, stated or derived."""
    if not isinstance(node, Mapping):
        return
    if "value" in node or "derived_from" in node:
        yield path, node
        return
    for key, value in node.items():
        yield from _entries(value, (*path, str(key)))


def _origin(file: str, path: tuple[str, ...]) -> tuple[str, tuple[str, ...], float, float] | None:
    """Where a figure is stated, through its sibling rules, and the range there; None where none is given."""
    for _ in range(_MAX_DERIVATIONS):
        node: Any = catalogue_document(file)
        for key in path:
            node = node.get(key) if isinstance(node, Mapping) else None
        if not isinstance(node, Mapping):
            return None
        if "derived_from" not in node:
            return next(((file, place, low, high) for place, low, high in _ranged(node, path)), None)
        file = str(node["derived_from"])
    return None


def _in_force(cluster: Cluster) -> Iterator[tuple[str, tuple[str, tuple[str, ...], float, float]]]:
    """(name, origin) of every rate and figure of the software profile with a range: its own, of the profile that it is like, of a sibling,
    or of the vendor's family, in this order.
    """
    gpu, document = cluster.gpu.name, catalogue_document(cluster.gpu.name)
    family = f"family_{document['vendor']}"
    places: dict[str, tuple[str, tuple[str, ...]]] = {}
    for path, _ in _entries(catalogue_document(family).get("rates"), ("rates",)):
        places[".".join(path[1:])] = (family, path)
    for path, _ in _entries(catalogue_document(family).get("figures"), ("figures",)):
        places[".".join(path)] = (family, path)
    profiles = document["profiles"]
    like = profiles[cluster.profile.name].get("like")
    for name in (like, cluster.profile.name):
        for path, _ in _entries(profiles.get(name), ("profiles", str(name))):
            places[".".join(path[2:])] = (gpu, path)
    for name, place in places.items():
        if (origin := _origin(*place)) is not None:
            yield name, origin


def figures(cluster: Cluster) -> list[Figure]:
    """Constants of the engine, and rates of the software profile in force, wherever the catalogue states them, with a range."""
    found: list[Figure] = []
    counts = []
    for path, low, high in _ranged(catalogue_yaml(f"engine/{TIME_FILE}.yaml"), ()):
        if path[0].startswith(f"{LAUNCHES}."):
            counts.append((TIME_FILE, path, low, high))
        else:
            found.append(Figure(name=path[0], text=constant_text(path[0], low, high), paths=((TIME_FILE, path, low, high),)))
    if counts:
        found.append(Figure(name=LAUNCHES, text="kernels a layer, all counts low to high", paths=tuple(counts)))
    if cluster.gpu.name not in gpu_names():  # a GPU of the user's own: the catalogue has no ranges of it
        return found
    for name, (file, path, low, high) in _in_force(cluster):
        of = "" if file == cluster.gpu.name else file
        found.append(Figure(name=name, text=constant_text(name, low, high, of), paths=((file, path, low, high),)))
    return found


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(_MEMOISED):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def effects(arch: Architecture, configs: Sequence[TrainingConfig], cluster: Cluster, backend: GemmBackend) -> list[Effect]:
    """The constants that move the first configuration most, largest first. Only for a process of its own: see the module."""
    pricer, cases = (
        Pricer(backend),
        [Case(arch=arch, config=config, cluster=cluster, counter="device", other_part=False, assumptions=()) for config in configs],
    )
    today = pricer.tokens_per_s(cases[0])

    def rates(figure: Figure, which: Sequence[Case], *, high: bool) -> tuple[float, ...]:
        _forget()
        return tuple(pricer.speeds(which, figure.at(high=high)))

    moved: list[tuple[float, Figure]] = []
    for figure in figures(cluster):
        try:
            ends = [rates(figure, cases[:1], high=high)[0] for high in (False, True)]
        except PrimusMcpError:  # an end that no kernel can have
            continue
        moved.append((max(abs(end - today) for end in ends), figure))
    moved.sort(key=lambda one: (-one[0], one[1].name))
    return [
        Effect(name=figure.name, text=figure.text, low=rates(figure, cases, high=False), high=rates(figure, cases, high=True))
        for effect, figure in moved[:SHOWN]
        if effect > 0
    ]


def credible_effects(arch: Architecture, configs: Sequence[TrainingConfig], cluster: Cluster, backend: GemmBackend) -> list[Effect]:
    """`effects` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=begin_worker) as pool:
        with workers_alive(), interrupts_held():
            future = pool.submit(effects, arch, list(configs), cluster, backend)
        with workers_alive():
            return future.result()
