"""From layer costs to one training iteration: pipeline, exchange, optimizer, and the answer."""

from primus_mcp.projection.performance.measured import MeasuredParts, decoder_part
from primus_mcp.projection.performance.projection import project_performance
from primus_mcp.projection.performance.record import PerformanceProjection

__all__ = ["MeasuredParts", "PerformanceProjection", "decoder_part", "project_performance"]
