"""Text from models, token by token."""
