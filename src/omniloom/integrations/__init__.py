"""Loaders within other people's training programs: Lightning and Accelerate."""
