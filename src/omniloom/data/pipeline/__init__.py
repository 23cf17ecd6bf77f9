"""What a sample becomes: a pure function of its key."""
