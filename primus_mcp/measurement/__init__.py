"""The GPU path: plan a reduced run, launch it on this host, and anchor both projections on what it measured."""
