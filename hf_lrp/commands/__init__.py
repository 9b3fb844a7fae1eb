"""The commands of `hf-lrp`, one module each."""
