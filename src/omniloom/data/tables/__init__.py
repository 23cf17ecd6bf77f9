"""Rows of tables: Parquet files and Arrow files as Hugging Face `datasets` saves them."""
