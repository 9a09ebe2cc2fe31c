"""What may be tried: the registry of knobs, legality, and how a trial becomes trainer keys."""
