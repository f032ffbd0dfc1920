"""Commands that lease a sandbox of the pool."""
