"""Measured runs: the JSON Lines schema that users write, and the rows that the package ships in its own.

A row is one training run: GPU, model, parallel configuration, batch, precision, recompute, flags, and what was measured. `null` (or a
missing key) means that its source does not say. Beyond this file a row has no source: it is resolved from its fields alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from primus_mcp.errors import InputError
from primus_mcp.inputs.catalogue import catalogue_text, catalogue_yaml
from primus_mcp.inputs.regular_file import read_regular

Trust = Literal["table", "text", "derived"]
Completeness = Literal["A", "B", "C"]
MAX_REPORTED = 5
_PART = re.compile(r"(\d+)\s*GB\s+HBM\S*\s+([\d.]+)\s*TB/s")


class Part(BaseModel):
    """A GPU that is not the catalogue's part of that name: its own capacity and bandwidth."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    hbm_gb: PositiveFloat
    hbm_tb_per_s: PositiveFloat


class Row(BaseModel):
    """One measured run. `mem_gb` is GB of 2**30 bytes of the worst rank; `mem_kind` says by which counter, or that it ran out of memory."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)

    id: str = Field(min_length=1, description="your name for the run")
    model: str = Field(
        min_length=1, description="a model of the catalogue, in any spelling; `, 4 layers` behind it is a slice of `arch.num_layers`"
    )
    gpu: str = Field(min_length=1, description="a GPU of the catalogue")
    n_gpus: PositiveInt | None = Field(default=None, description="GPUs of the run")
    framework: str | None = Field(default=None, description="chooses the settings that the row leaves out, for example Primus/Megatron-LM")
    released: str | None = Field(default=None, pattern=r"^20\d\d-\d\d$", description="year and month of the software: chooses the profile")
    task: str = Field(default="pretrain", description="pretrain, sft, lora or lora-sft")
    arch: dict[str, Any] | None = Field(
        default=None, description="num_layers, hidden, heads, ffn, vocab of a GPT that is not in the catalogue"
    )
    part: Part | None = Field(default=None, description="hbm_gb and hbm_tb_per_s of a GPU that is not the catalogue's part")
    precision: str | None = Field(default=None, description="BF16, FP8, FP8-CS, MXFP8, NVFP4")
    seq: PositiveInt | None = Field(default=None, description="tokens a sequence")
    mbs: PositiveInt | None = Field(default=None, description="sequences of a micro-batch")
    gbs: PositiveInt | None = Field(default=None, description="sequences of the global batch")
    tp: PositiveInt | None = Field(default=None, description="tensor-parallel size")
    pp: PositiveInt | None = Field(default=None, description="pipeline-parallel size")
    ep: PositiveInt | None = Field(default=None, description="expert-parallel size")
    cp: PositiveInt | None = Field(default=None, description="context-parallel size")
    vpp: PositiveInt | None = Field(default=None, description="virtual stages a pipeline rank")
    dp: PositiveInt | None = Field(default=None, description="data-parallel size, where TP or CP is missing")
    etp: PositiveInt | None = Field(default=None, description="expert tensor-parallel size")
    fsdp: bool | None = Field(default=None, description="parameters are fully sharded")
    dist_opt: bool | None = Field(default=None, description="distributed optimizer")
    recompute: str | None = Field(
        default=None, description="none; full; full uniform N; full block N; full, N layer ids 0,1,..; selective core_attn, moe_act"
    )
    flags: str | None = Field(default=None, description="words of the vocabulary below, separated by ;")
    tokens_s_gpu: PositiveFloat | None = Field(default=None, description="measured tokens/s/GPU")
    iter_s: PositiveFloat | None = Field(default=None, description="measured seconds an iteration, where tokens/s/GPU is missing")
    mem_gb: PositiveFloat | None = Field(default=None, description="measured memory of the worst rank, GB of 2**30 bytes")
    mem_kind: str | None = Field(default=None, description="its counter: allocated, reserved, HBM in use; or OOM")
    trust: Trust = Field(default="table", description="how the figure was published: table, derived, text")
    config_completeness: Completeness = Field(default="A", description="A: all stated; B: at most two fields missing; C: inferred")
    suite: tuple[str, ...] = Field(default=(), strict=False, description="names by which --suite chooses")

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """Measured, or from the iteration time: GBS x sequence / time / GPUs."""
        if self.tokens_s_gpu is not None:
            return self.tokens_s_gpu
        if self.iter_s and self.gbs and self.seq and self.n_gpus:
            return self.gbs * self.seq / self.iter_s / self.n_gpus
        return None

    @property
    def ran_out_of_memory(self) -> bool:
        """The run failed for memory."""
        return self.mem_kind is not None and self.mem_kind.upper().startswith("OOM")


@cache
def _release_patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(entry["pattern"]), entry["released"]) for entry in catalogue_yaml("measured/releases.yaml")["patterns"])


def release_date(text: str) -> str | None:
    """Year and month of the software that a citation names (a container, a results round, an arXiv number); None: it names none."""
    for pattern, form in _release_patterns():
        if match := pattern.search(text):
            return match.expand(form)
    return None


def _with_facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """The schema has no columns for the date and for non-standard parts: both are read from the texts that state them."""
    known = dict(document)
    if known.get("released") is None:
        cited = " ".join(str(known.get(key) or "") for key in ("framework", "source"))
        known["released"] = release_date(cited)
    if known.get("part") is None and (match := _PART.search(str(known.get("notes") or ""))):
        known["part"] = {"hbm_gb": float(match[1]), "hbm_tb_per_s": float(match[2])}
    return known


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _problem(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "row"
        return f"{field}: {first['msg'][0].lower()}{first['msg'][1:]} (is {first['input']!r:.60})"
    return f"not JSON: {error}"


def _parse(line: str) -> Row:
    document = json.loads(line, parse_constant=_constant)
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return Row.model_validate(_with_facts(document))


MAX_BYTES = 64 << 20
"""Of a file of rows: some 100,000 runs."""


def parse_rows(text: str, where: str) -> tuple[Row, ...]:
    """Rows of JSON Lines text. Raises one InputError that lists the first bad lines and counts the others."""
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(_parse(line))
        except RecursionError:
            problems.append(f"line {number}: nests too deeply")
        except ValueError as error:
            problems.append(f"line {number}: {_problem(error)}")
    if problems:
        more = f" (and {len(problems) - MAX_REPORTED} more lines)" if len(problems) > MAX_REPORTED else ""
        raise InputError("; ".join(problems[:MAX_REPORTED]) + more, where=where, remedy="correct these lines")
    if not rows:
        raise InputError("has no rows", where=where, remedy="write one JSON object a line")
    return tuple(rows)


def read_rows(path: Path) -> tuple[Row, ...]:
    """Rows of a file. Raises InputError."""
    try:
        text = read_regular(path, MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path), remedy="name a JSON Lines file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8", where=str(path), remedy="save the file as UTF-8") from None
    return parse_rows(text, str(path))


@cache
def shipped_rows() -> tuple[Row, ...]:
    """The published runs that come with the package (catalog/measured/rows.jsonl)."""
    return tuple(Row.model_validate(_flat(json.loads(line))) for line in catalogue_text("measured/rows.jsonl").splitlines())


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """A shipped row groups its fields by `run`, `layout` and `measured`; unknown fields are left out."""
    grouped = {key: value for name in ("run", "layout", "measured") for key, value in document.get(name, {}).items()}
    return grouped | {"id": document["id"], "released": document.get("released"), "suite": tuple(document["suites"])}
