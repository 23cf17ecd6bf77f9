"""Images, video, audio and text in shards become training batches: blended, shuffled, exact, resumable."""
