"""Other formats to shards: LLaVA-style JSON with a folder or zip of images."""
