"""Contributions and their views: words, alignment, table, page, picture."""
