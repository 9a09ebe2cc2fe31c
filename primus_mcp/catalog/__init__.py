"""Data only: models, hardware and engine constants, every number with its source."""
