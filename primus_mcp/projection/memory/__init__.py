"""Memory of every pipeline rank at the moment of its peak."""
