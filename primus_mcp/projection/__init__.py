"""What a trial costs: pure functions of the records, no I/O, no clock, no environment."""
