"""Inputs that users give: sources, targets, prompts, predictions and limits, read and checked."""
