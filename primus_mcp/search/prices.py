"""What a GPU hour costs: the user's own price, else the median of dated published quotes, else unknown."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median

import yaml
from pydantic import BaseModel, ConfigDict, Field


class Quote(BaseModel):
    """One published rental price of one GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usd_per_gpu_hour: float = Field(gt=0)
    date: datetime.date
    source: str = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD a GPU and hour, the spread of what was quoted, and where it is from in one line."""

    usd_per_gpu_hour: float
    low: float
    high: float
    source: str


@cache
def quotes() -> dict[str, tuple[Quote, ...]]:
    """Every quote of `catalog/prices.yaml` by GPU."""
    raw = yaml.safe_load((files("primus_mcp.catalog") / "prices.yaml").read_text(encoding="utf-8"))
    return {gpu: tuple(Quote.model_validate(entry) for entry in entries) for gpu, entries in raw.items()}


def price_of(gpu: str, stated: float | None = None) -> Price | None:
    """The price of a GPU; None where nobody said one."""
    if stated is not None:
        return Price(usd_per_gpu_hour=stated, low=stated, high=stated, source="stated by the user")
    found = quotes().get(gpu)
    if not found:
        return None
    values = [quote.usd_per_gpu_hour for quote in found]
    newest = max(quote.date for quote in found)
    text = f"median of {len(found)} published quotes of ${min(values):.2f} to ${max(values):.2f}, newest of {newest.isoformat()}"
    return Price(usd_per_gpu_hour=median(values), low=min(values), high=max(values), source=text)
