"""The verbs: TOOLS, one typed and documented function each, for the MCP server and for the DSPy driver."""

from primus_mcp.tools import catalogue, inspection, evaluate, sweep, artefacts, history, explain, notes  # noqa: F401, I001  the order of tools/list
from primus_mcp.tools.registry import TOOLS, LlmReply, Tool, ToolContext, bind
from primus_mcp.tools.results import Result

__all__ = ["TOOLS", "LlmReply", "Result", "Tool", "ToolContext", "bind"]
