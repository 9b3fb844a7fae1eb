"""What differs between kinds of models: decoder-only models and speech."""
