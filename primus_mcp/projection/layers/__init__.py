"""Forward, input-gradient and weight-gradient cost of each kind of layer."""
