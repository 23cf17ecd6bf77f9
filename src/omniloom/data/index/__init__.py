"""The `.nv-meta` sidecar in Energon's own format: read, write, build."""
