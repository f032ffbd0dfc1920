"""Templates and their tags, by the names that E2B's SDKs use."""
