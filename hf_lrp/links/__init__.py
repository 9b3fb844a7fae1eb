"""Word links between sources and translations, from the attention heads of a translation model that make them."""
