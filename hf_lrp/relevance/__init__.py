"""Rules on plain tensors, operations, modules, blocks, families, and relevance sent back through a model."""
