"""Image bytes to arrays."""
