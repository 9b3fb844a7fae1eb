"""HTML pages: one skeleton, their data, and the scripts that draw them."""
