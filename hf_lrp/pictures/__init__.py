"""Pictures of results and of corpora, for print."""
