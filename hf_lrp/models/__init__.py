"""A model as the package sees it, without any method: families, configs, token ids, loading."""
