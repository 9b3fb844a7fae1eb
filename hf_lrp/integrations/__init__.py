"""Other libraries that can use the method; each module needs its library."""
