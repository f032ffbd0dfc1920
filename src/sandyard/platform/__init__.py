"""The Platform: accounts and what belongs to them, sandboxes that run programs, usage and bills."""
