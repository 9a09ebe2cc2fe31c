"""YAML in, frozen records out."""
