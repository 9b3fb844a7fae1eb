"""Training of translation models: maximum likelihood, word dropout, minimum risk."""
