"""Every rule that a configuration must obey: hard ones cite the trainer's assert, policy ones bound the search."""

from primus_mcp.space.rules.base import Case, Kind, Rule
from primus_mcp.space.rules.registry import CONFIG_RULES, REQUEST_RULES, RULES

__all__ = ["CONFIG_RULES", "REQUEST_RULES", "RULES", "Case", "Kind", "Rule"]
