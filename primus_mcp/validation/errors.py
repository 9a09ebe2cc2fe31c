"""Why a row is left out."""

from __future__ import annotations

from primus_mcp.errors import PrimusMcpError


class NotScoredError(PrimusMcpError):
    """A row that cannot be predicted or compared; the text is the reason, without the row's own numbers, so that reasons can be counted."""
