"""primus-mcp: which Primus training configuration gives the most tokens/s/GPU and fits in memory."""
