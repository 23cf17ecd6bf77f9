"""Training: from a recipe to checkpoints."""
