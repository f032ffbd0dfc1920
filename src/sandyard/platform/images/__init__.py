"""Images of accounts: pulled from registries or uploaded, for their templates."""
