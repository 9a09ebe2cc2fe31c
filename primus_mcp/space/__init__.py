"""What may be tried: knobs, their trainer keys, legality, axes, the adapted baseline and overlays."""
