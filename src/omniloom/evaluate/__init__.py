"""Evaluation: tasks, answers and scores."""
