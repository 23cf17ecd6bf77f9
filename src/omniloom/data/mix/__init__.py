"""Mixes: what a metadataset or a value of Python says, as one plain tree, and the flat leaves it comes to."""
