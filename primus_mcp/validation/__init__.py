"""Scores the projections against measured runs: rows in, predictions and grouped errors out."""
