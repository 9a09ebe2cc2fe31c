"""The title of a rule by its id, for people who read counts."""

from __future__ import annotations

from primus_mcp.space.rules import RULES

_TITLES = {rule.id: rule.title for rule in RULES}


def rule_title(rule_id: str) -> str:
    """`W1 world size is a multiple of TP x PP x CP`; the id alone where it is not a rule's."""
    title = _TITLES.get(rule_id)
    return f"{rule_id}  {title}" if title else rule_id
