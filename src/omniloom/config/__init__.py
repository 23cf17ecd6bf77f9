"""YAML and flags become frozen, validated values."""
