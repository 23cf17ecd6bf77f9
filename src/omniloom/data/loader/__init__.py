"""Lanes shared by worker processes; batches and states carried to the caller."""
