"""Parallelism: torch's own engines, applied to a model that knows nothing of them."""
