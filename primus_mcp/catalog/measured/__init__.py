"""Measured runs and what is known of how they were configured, as data."""
