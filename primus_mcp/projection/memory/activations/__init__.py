"""What every operation of the model keeps for its backward pass, and what it needs while it runs."""
