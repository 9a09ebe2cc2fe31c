"""What a measured run leaves unsaid, as data: settings by framework and date, Primus's examples, published recipes (catalog/measured)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.inputs.catalogue import catalogue_text, catalogue_yaml
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.validation.rows import Part, Row

Counter = Literal["allocated", "reserved", "device"]
RECIPE_KEYS: Mapping[str, str] = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "virtual_pipeline_model_parallel_size": "vpp",
    "micro_batch_size": "mbs",
    "global_batch_size": "gbs",
    "num_gpus": "n_gpus",
}
"""A recipe's key -> the row's field. A degree that a recipe leaves out is 1."""
NEAR_MONTHS = 3
"""Recipes come with a release every one to three months: what a results page shows may be the recipe of the release after it."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Settings(_Data):
    """One entry of the table: conditions, and what holds where the row is silent.

    `example_arguments`: what the framework's example said otherwise at the entry's date.
    """

    frameworks: tuple[str, ...]
    name: str
    source: str
    gpus: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    since: str | None = Field(default=None, alias="from")
    until: str | None = None
    examples: Literal["primus"] | None = None
    recipes: Literal["bridge"] | None = None
    presets: bool = False
    operators_only: bool = False
    arguments: dict[str, Any] = {}
    example_arguments: dict[str, Any] = {}
    config: dict[str, Any] = {}
    shape: dict[str, Any] = {}
    vocabulary_extra: int = 0
    counter: Counter | None = None
    released: str | None = None
    part: Part | None = None

    def holds(self, row: Row, model: str | None) -> bool:
        """Whether all conditions hold for a row. A condition on the date fails where the date is unknown."""
        framework = (row.framework or "").lower()
        date = row.released
        return (
            any(framework.startswith(prefix) for prefix in self.frameworks)
            and (not self.gpus or row.gpu.lower() in self.gpus)
            and (not self.tasks or row.task in self.tasks)
            and (not self.models or model in self.models)
            and (not self.precisions or any(word in (row.precision or "") for word in self.precisions))
            and (self.since is None or (date is not None and date >= self.since))
            and (self.until is None or (date is not None and date <= self.until))
        )


class Example(_Data):
    """A workload file that a framework ships: the overrides of one model on one GPU. `ladder`: the unoptimised start of a ladder.

    `gpus`: how many it is written for, where it says so. `config`: settings of its images that the trainer has no key for.
    """

    framework: str
    gpu: str
    model: str
    precision: str | None
    ladder: bool
    arguments: dict[str, Any]
    source: str
    gpus: int | None = None
    config: dict[str, Any] = {}


class Recipe(_Data):
    """A published recipe: layout and features (no results) of one model, GPU, precision and task in some releases."""

    model: str
    gpu: str
    precision: str | None
    task: str
    released: tuple[str, ...]
    settings: dict[str, Any]


@cache
def settings_table() -> tuple[Settings, ...]:
    """All entries, in order."""
    return tuple(Settings.model_validate(entry) for entry in catalogue_yaml("measured/settings.yaml")["entries"])


@cache
def _examples() -> tuple[Example, ...]:
    return tuple(Example.model_validate_json(line) for line in catalogue_text("measured/primus_examples.jsonl").splitlines())


@cache
def _recipes() -> Mapping[tuple[str, str, str], tuple[Recipe, ...]]:
    """By model, GPU and task."""
    found: dict[tuple[str, str, str], list[Recipe]] = {}
    for line in catalogue_text("measured/bridge_recipes.jsonl").splitlines():
        document = json.loads(line)
        own = {key: document.pop(key) for key in ("model", "gpu", "precision", "task", "released")}
        recipe = Recipe.model_validate({**own, "settings": document})
        found.setdefault((recipe.model, recipe.gpu, recipe.task), []).append(recipe)
    return {key: tuple(recipes) for key, recipes in found.items()}


def find_example(row: Row, model: str, *, ladder: bool) -> Example | None:
    """The example of a model: ladder starts for ladders, this GPU before its generation before another, this precision before another."""
    family = "FP8" if "FP8" in (row.precision or "BF16").upper() else "BF16"
    candidates = [example for example in _examples() if example.model == model]
    if not candidates:
        return None

    own = gpu_profile(row.gpu)

    def distance(example: Example) -> tuple[bool, bool, bool, bool]:
        generation = gpu_profile(example.gpu).arch != own.arch
        return example.ladder != ladder, generation, example.gpu != own.name, example.precision not in (family, None)

    return min(candidates, key=distance)


def _months(date: str | None) -> int:
    return 0 if date is None else 12 * int(date[:4]) + int(date[5:])


def _precision_words(row: Row) -> tuple[str, ...]:
    text = (row.precision or "").upper()
    if "NVFP4" in text:
        return ("NVFP4",)
    if "MX" in text:
        return ("FP8_MX",)
    return ("FP8_CS", "FP8_SC") if "FP8" in text else ("BF16",)


def find_recipe(row: Row, model: str) -> Recipe | None:
    """The recipe of the row's model, GPU and task that is nearest: precision, a release near the row's, layout and batch, then release.

    A release far from the row's has features that its software had not (graphs of the iteration, fused experts), whatever its layout.
    """
    candidates = _recipes().get((model, row.gpu.lower(), row.task), ())
    wanted = _precision_words(row)
    shape = {field: getattr(row, field) for field in RECIPE_KEYS.values() if getattr(row, field) is not None}

    def distance(recipe: Recipe) -> tuple[bool, bool, int, int]:
        own = {RECIPE_KEYS[key]: value for key, value in recipe.settings.items() if key in RECIPE_KEYS}
        differing = sum(own.get(field, 1) != value for field, value in shape.items())
        away = min(abs(_months(release) - _months(row.released)) for release in recipe.released) if row.released else 0
        return recipe.precision not in wanted, away > NEAR_MONTHS, differing, away

    return min(candidates, key=distance, default=None)
