"""Scores: pure functions from answers to numbers, each with the source of its rule."""
