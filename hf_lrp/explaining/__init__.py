"""The user's verb `explain`: a model that is read, a call, its results."""
