"""What is on disk: the trial log, the journal, the budget derived from it, the scratchpad."""
