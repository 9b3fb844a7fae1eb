"""Contributions and their views: words, alignment, table, files."""
