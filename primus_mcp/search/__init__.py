"""Which trials to evaluate next."""
