"""API keys, which open every door that a login opens."""
