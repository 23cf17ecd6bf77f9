"""Where the bytes of row i lie: tar archives (JSONL, Parquet and folders join later)."""
