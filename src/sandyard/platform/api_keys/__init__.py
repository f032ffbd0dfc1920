"""API keys, which are valid wherever a login is."""
