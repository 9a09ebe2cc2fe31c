"""Engine constants as data: each YAML file of `catalog/engine/` is one group of named figures with unit, range and source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from primus_mcp.errors import UnknownFigureError
from primus_mcp.inputs.catalogue import catalogue_names, catalogue_yaml

Evidence = Literal["measured", "derived", "estimated"]


class Constant(BaseModel):
    """One figure: the value used, the range in which it is credible, where it is from and what kind of evidence that is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: float
    unit: str
    range: tuple[float, float]
    source: str = Field(min_length=1)
    kind: Evidence = "estimated"
    fitted_on: tuple[str, ...] = ()
    """Families of models whose whole runs set the value; empty: code, data sheets, micro-benchmarks or judgement did."""

    @model_validator(mode="after")
    def _ordered(self) -> Constant:
        if not self.range[0] <= self.value <= self.range[1]:
            raise ValueError(f"value {self.value} lies outside its range {self.range}")
        return self

    @property
    def low(self) -> float:
        """Smallest credible value."""
        return self.range[0]

    @property
    def high(self) -> float:
        """Largest credible value."""
        return self.range[1]


@cache
def _read_group(group: str) -> Mapping[str, Any]:
    if group not in catalogue_names("engine"):
        raise UnknownFigureError(f"no engine constants named {group!r}")
    return MappingProxyType(catalogue_yaml(f"engine/{group}.yaml"))


def load_constants(group: str) -> Mapping[str, Constant]:
    """The constants of `catalog/engine/<group>.yaml`. Raises UnknownFigureError where there is no such group."""
    return MappingProxyType({name: Constant.model_validate(fields) for name, fields in _read_group(group).items()})


MEMORY: Mapping[str, Constant] = load_constants("memory")
"""Constants of `catalog/engine/memory.yaml`."""

_TIME = {name: float(fields["value"]) for name, fields in _read_group("time").items() if not isinstance(fields["value"], list)}
TIME: Mapping[str, float] = MappingProxyType(_TIME)
"""Plain values of `catalog/engine/time.yaml`."""

TIME_PAIRS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {name: (fields["value"][0], fields["value"][1]) for name, fields in _read_group("time").items() if isinstance(fields["value"], list)}
)
"""Values of `catalog/engine/time.yaml` that come in pairs."""


@contextmanager
def time_values(changes: Mapping[str, float]) -> Iterator[None]:
    """Other values of time constants inside the block, for refits. Costs already memoised do not see them: price under new `Rates`."""
    before = {name: _TIME[name] for name in changes}
    _TIME.update(changes)
    try:
        yield
    finally:
        _TIME.update(before)
