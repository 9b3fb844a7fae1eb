"""A module for Hugging Face `evaluate`: `evaluate.load(SOURCE_CONTRIBUTION)`."""

from pathlib import Path

# The folder is complete in itself, so that it can be pushed to the Hub.
SOURCE_CONTRIBUTION = str(Path(__file__).parent / "source_contribution")
