"""Kinds of models, and what differs between them: decoder-only models and speech."""
