"""The version of the package, readable without importing it."""

__version__ = "0.2.0"
