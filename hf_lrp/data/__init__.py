"""Sentence pairs and files, for analysis and training."""
