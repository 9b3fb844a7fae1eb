"""A corpus evaluated: which sentences, where results are kept, and what each process does."""
