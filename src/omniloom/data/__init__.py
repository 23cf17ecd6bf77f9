"""The loader."""
