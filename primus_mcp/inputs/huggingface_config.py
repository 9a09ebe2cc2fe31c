"""A Hugging Face `config.json` as a checked mapping that remembers which keys were read, and the table of model classes.

The table is catalog/huggingface.yaml: what each class of transformers fixes in code, fills in, or ignores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.errors import InputError, UnsupportedFeatureError
from primus_mcp.inputs.argument_values import MAX_COUNT
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.explain_validation import did_you_mean

WindowRule = Literal["none", "every_layer", "from_layer", "alternating", "pattern"]
_SHOWN = 60


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ExpertKeys(_Record):
    """The keys that hold the experts. The shared expert is given by its width, or as a count of experts of the routed width."""

    number: str
    top_k: str
    width: str
    shared_width: str | None = None
    shared_count: str | None = None


class ModelClass(_Record):
    """One `model_type`: what its code fixes, what it takes for absent keys, how it names its parts."""

    defaults: dict[str, Any]
    numbers: dict[str, Any] = {}
    not_carried: list[str] = []
    fixed: dict[str, Any] = {}
    attention_bias: Literal["qkv", "qkvo"] | None = None
    window: WindowRule = "none"
    latent: bool = False
    experts: ExpertKeys | None = None
    expert_fixed: dict[str, Any] = {}


class Refusal(_Record):
    """A key that the engine can price at these values only."""

    priced: list[Any]
    feature: str


class ModelClasses(_Record):
    """The whole table."""

    no_cost: dict[str, str]
    left_out: dict[str, str]
    refused: dict[str, Refusal]
    not_carried: dict[str, list[Any]]
    families: Annotated[dict[str, ModelClass], Field(min_length=1)]


@cache
def model_classes() -> ModelClasses:
    """catalog/huggingface.yaml."""
    return ModelClasses.model_validate(catalogue_yaml("huggingface.yaml"))


def shown(value: object) -> str:
    """A value as one short line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class HfConfig:
    """Typed reading of a config. `used` are the keys that were read, `filled` those that the class's own default answered."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.document, self.where = document, where
        self.model_type = self._model_type()
        self.family = model_classes().families[self.model_type]
        self.used: set[str] = {"model_type"}
        self.filled: dict[str, Any] = {}

    def _model_type(self) -> str:
        named, known = self.document.get("model_type"), model_classes().families
        if named is None:
            raise InputError("has no model_type: it is no transformers config.json", where=self.where, remedy="name a model's config.json")
        if not isinstance(named, str) or named not in known:
            hint = did_you_mean(str(named), sorted(known)) if isinstance(named, str) else f"known: {', '.join(sorted(known))}"
            problem = f"model_type {shown(named)} is no class that can be read"
            raise UnsupportedFeatureError(problem, where=self.where, remedy=f"{hint}; any other model is priced as a Primus workload file")
        return named

    def refuse(self, key: str, problem: str, remedy: str) -> InputError:
        """One line that names the key."""
        return InputError(f"{key} {problem}", where=self.where, remedy=remedy)

    def raw(self, key: str) -> Any:
        """The value; where the file has none, the class's default."""
        self.used.add(key)
        if key in self.document:
            return self.document[key]
        for values in (self.family.defaults, self.family.numbers):
            if key in values:
                self.filled[key] = values[key]
                return values[key]
        return None

    def count(self, key: str, minimum: int = 1) -> int:
        """A whole number that must be there."""
        value = self.optional_count(key, minimum)
        if value is None:
            raise self.refuse(key, "is missing", "add it; a size is never guessed")
        return value

    def optional_count(self, key: str, minimum: int = 1) -> int | None:
        """A whole number, or null."""
        value = self.raw(key)
        if value is None:
            return None
        if type(value) is not int or not minimum <= value <= MAX_COUNT:
            raise self.refuse(key, f"is {shown(value)}", f"write a whole number of at least {minimum}")
        return value

    def flag(self, key: str) -> bool:
        """A boolean; absent and null are false."""
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.refuse(key, f"is {shown(value)}", "write true or false")

    def number(self, key: str) -> float | None:
        """A number above 0, or null."""
        value = self.raw(key)
        return None if value is None else self.as_number(key, value)

    def as_number(self, key: str, value: object, *, zero: bool = False) -> float:
        """A value found under the key as a finite number above 0, or of at least 0. Raises InputError."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT or (value == 0 and not zero):
            raise self.refuse(key, f"is {shown(value)}", f"write a number {'of at least' if zero else 'above'} 0")
        return float(value)

    def fraction(self, key: str) -> float:
        """A number from 0 to 1; absent and null are 0."""
        value = self.raw(key)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.refuse(key, f"is {shown(value)}", "write a number from 0 to 1")
        return float(value)

    def texts(self, key: str, length: int, allowed: Mapping[str, Any]) -> list[str] | None:
        """A list of one known text a layer, or null."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(key, f"is {shown(value)}", f"write one of {', '.join(allowed)} a layer")
        if len(value) != length:
            raise self.refuse(key, f"has {len(value)} entries, the model has {length} layers", f"write {length} entries")
        if unknown := sorted(set(value) - set(allowed)):
            raise UnsupportedFeatureError(f"{key} has {shown(unknown[0])} layers, which cannot be priced", where=self.where)
        return value

    def layers(self, key: str, length: int) -> frozenset[int]:
        """A list of layer numbers; absent and null are none."""
        value = self.raw(key)
        items = [] if value is None else value
        if not isinstance(items, list) or not all(type(item) is int and 0 <= item < length for item in items):
            raise self.refuse(key, f"is {shown(value)}", f"write layer numbers from 0 to {length - 1}")
        return frozenset(items)
