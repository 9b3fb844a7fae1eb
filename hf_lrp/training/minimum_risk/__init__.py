"""Minimum Risk Training: candidates, risks, loss and trainer."""
