"""Access to the Platform: credentials, login tokens, scopes, rate limits and guarded routes."""
