"""docs/knobs.md, generated from the registries of knobs and rules."""

from __future__ import annotations

from primus_mcp.space.knobs import KNOBS, SCHEDULE_OF_KNOB, Knob
from primus_mcp.space.pipeline_keys import PATCHED_SCHEDULE, STOCK_SCHEDULE
from primus_mcp.space.rules import RULES, Rule
from primus_mcp.space.what_if import WHAT_IF_SCHEDULES

_INTRODUCTION = """# Knobs and rules

Generated from the code (`python -m primus_mcp.space.docs`); a test keeps it current.

A trial is a JSON object of the knobs that it changes. A knob that is left out, or null, is inherited from the workload. A trial is
priced by turning it into trainer keys over the workload's own arguments and reading those as a workload file is read; the overlay
YAML holds the same keys, so it runs what was priced.

`axis` is the toggle of `optimization.axes` in the cluster file that pins a knob to the workload's baseline; `--pin knob=value`
pins any knob.

Degrees: DP = world / (TP x PP x CP) splits the batch. Routed experts are replicated expert DP = world / (ETP x PP x EP) times;
other guides call this one DP for MoE models.
"""
_RULES = """## Rules

`hard`: the trainer refuses the configuration, or silently runs something else; the source is the line that does it. `policy`: a
bound of the search, which `--allow-policy` lifts; the workload's own baseline, `evaluate`, `memory` and `performance` are judged by hard
rules only (`evaluate`, here and over MCP, warns of a policy and never counts such a configuration as the best). What the trainer's own
argument parsing refuses (R1-R3, L1, S16, E18, ...) is refused while the keys are read.
"""
_PLANNED = """
`zerobubble-heuristic` plans its order from the workload's `pp_max_mem` (most live micro-batches of a rank, from the forward to the weight
gradient; a number or one a rank; null: no limit, all stay alive) and `pp_cost_f`, `pp_cost_b`, `pp_cost_w` (a number or one a rank; null:
1000). They are read, priced and passed on, not tuned.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _knob_row(knob: Knob) -> tuple[str, ...]:
    name = f"`{knob.name}`" + (" (MoE)" if knob.moe_only else "")
    keys = ", ".join(f"`{key}`" for key in knob.trainer_keys) or "none"
    return name, knob.values_text, knob.legal, knob.description, knob.axis or "", keys


def _rule_row(rule: Rule) -> tuple[str, ...]:
    return rule.id, rule.kind, rule.title, rule.source


def _keys_text(keys: dict[str, object]) -> str:
    return ", ".join(f"`{key}: {str(value).lower()}`" for key, value in keys.items())


def _schedule_table() -> str:
    rows = [
        ("auto, VPP 1", _keys_text(STOCK_SCHEDULE)),
        ("auto, VPP > 1", _keys_text(STOCK_SCHEDULE) + ", `num_virtual_stages_per_pipeline_rank` or a layout"),
    ]
    rows += [(f"`{knob}`", f"`pp_algorithm: {schedule}` and the keys below") for knob, schedule in SCHEDULE_OF_KNOB.items()]
    return (
        _table(("pp_schedule", "trainer keys"), [*rows])
        + f"\nWith a `pp_algorithm`: {_keys_text(PATCHED_SCHEDULE)}.\n{_PLANNED}\n{_what_ifs()}"
    )


def _what_ifs() -> str:
    rows: list[tuple[str, ...]] = [(f"`{name}`", reason) for name, reason in WHAT_IF_SCHEDULES.items()]
    head = "No key selects these; `primus-mcp performance --schedule all` prices them beside the others:"
    return f"{head}\n\n{_table(('pp_schedule', 'why it cannot run'), rows)}"


def knobs_markdown() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    header = ("knob", "values", "legal", "what it does", "axis", "trainer keys")
    for group in dict.fromkeys(knob.group for knob in KNOBS.values()):
        rows = [_knob_row(knob) for knob in KNOBS.values() if knob.group == group]
        parts.append(f"## {group.capitalize() if group != 'moe' else 'MoE'}\n\n{_table(header, rows)}")
    parts.append(f"## Schedule keys\n\n{_schedule_table()}")
    parts.append(f"{_RULES}\n{_table(('id', 'kind', 'rule', 'source'), [_rule_row(rule) for rule in RULES])}")
    return "\n".join(parts)


if __name__ == "__main__":
    from pathlib import Path

    Path("docs/knobs.md").write_text(knobs_markdown(), encoding="utf-8")
