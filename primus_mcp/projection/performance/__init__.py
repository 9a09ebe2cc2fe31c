"""Iteration time of a configuration, and where it goes."""
