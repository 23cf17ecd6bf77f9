"""Weights in every form they are published in: one table of invertible changes from our names to each other form."""
