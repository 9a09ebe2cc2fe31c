"""The cache of earlier runs on the command line: it proposes what to price first, and never stops a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from primus_mcp.errors import PrimusMcpError

if TYPE_CHECKING:
    from primus_mcp.evaluation.result import EvaluationResult
    from primus_mcp.search.cache import Proposal
    from primus_mcp.space.knobs import TrialConfig
    from primus_mcp.trials.log import Digests

KEPT_A_RUN = 10
"""Best trials of a run that are remembered."""


class BestKnown:
    """Reads and writes the cache. The first thing that goes wrong is said in one line, and the cache is left alone from then on."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled

    def proposals(self, digests: Digests, limit: int) -> list[tuple[TrialConfig, Proposal]]:
        """Configurations that earlier runs found for this workload, with where each is from. Their numbers are not used."""
        from primus_mcp.search.cache import TrialCache
        from primus_mcp.space.knobs import TrialConfig

        if not self._enabled:
            return []
        found = []
        try:
            for proposal in TrialCache().proposals(digests, limit):
                try:
                    found.append((TrialConfig(**proposal.trial), proposal))
                except ValueError:  # a knob that this version does not have
                    continue
        except PrimusMcpError as error:
            self._give_up(error)
        return found

    def keep(self, digests: Digests, name: str, entries: Iterable[tuple[str, dict[str, Any], EvaluationResult]]) -> None:
        """Remember priced trials (key, knobs, result)."""
        from primus_mcp.search.cache import TrialCache

        if not self._enabled:
            return
        try:
            TrialCache().remember(digests, name, entries)
        except PrimusMcpError as error:
            self._give_up(error)

    def _give_up(self, error: PrimusMcpError) -> None:
        self._enabled = False
        print(f"WARNING: {error}", file=sys.stderr)
