"""Bytes from anywhere. Knows nothing of data sets."""
