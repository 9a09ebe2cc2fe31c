"""What a GPU hour costs: the user's own price, else the median of dated published quotes, else unknown."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cache
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from primus_mcp.evaluation.result import EvaluationResult
from primus_mcp.inputs.catalogue import catalogue_yaml
from primus_mcp.inputs.cluster_file import StatedPrice
from primus_mcp.units import MTOKEN, S_PER_HOUR


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
    return {gpu: tuple(Quote.model_validate(entry) for entry in entries) for gpu, entries in catalogue_yaml("prices.yaml").items()}


def price_of(gpu: str, stated: StatedPrice | float | None = None) -> Price | None:
    """The price of a GPU: a stated one, else the median of the catalogue's quotes; None where nobody said one."""
    if stated is not None:
        known = stated if isinstance(stated, StatedPrice) else StatedPrice(usd_per_gpu_hour=stated)
        words = [word for word in (known.source, known.date) if word]
        text = f"stated by the user{': ' + ', '.join(words) if words else ''}"
        value = known.usd_per_gpu_hour
        return Price(usd_per_gpu_hour=value, low=value, high=value, source=text)
    found = quotes().get(gpu)
    if not found:
        return None
    values = [quote.usd_per_gpu_hour for quote in found]
    newest = max(quote.date for quote in found)
    text = f"median of {len(found)} published quotes of ${min(values):.2f} to ${max(values):.2f}, newest of {newest.isoformat()}"
    return Price(usd_per_gpu_hour=median(values), low=min(values), high=max(values), source=text)


def cost_text(price: Price | None, tokens_per_s_per_gpu: float) -> str | None:
    """USD a million tokens in words; None where no price is known."""
    if price is None:
        return None
    return f"${usd_per_million_tokens(price, tokens_per_s_per_gpu):.3f}/Mtoken at ${price.usd_per_gpu_hour:.2f} a GPU hour ({price.source})"


def cost_of(result: EvaluationResult, gpu: str, stated: StatedPrice | None) -> str | None:
    """`cost_text` of a priced trial; None also where its throughput is no estimate."""
    if result.tokens_per_s_per_gpu is None or result.fidelity in ("synthetic", "heuristic"):
        return None
    return cost_text(price_of(gpu, stated), result.tokens_per_s_per_gpu)


def usd_per_million_tokens(price: Price, tokens_per_s_per_gpu: float) -> float:
    """USD: price / 3600 / (tokens/s/GPU) x 1e6."""
    return price.usd_per_gpu_hour / S_PER_HOUR / tokens_per_s_per_gpu * MTOKEN
