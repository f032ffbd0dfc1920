"""The Platform: accounts and what belongs to them, sandboxes that really run, usage and bills."""
