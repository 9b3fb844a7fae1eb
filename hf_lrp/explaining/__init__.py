"""From inputs to contributions: sources, prefixes, predictions, memory, and the verb `explain`."""
