"""Fields of bodies and queries that all nouns share."""
