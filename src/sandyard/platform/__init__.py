"""The Platform: accounts, projects, templates, keys, sandboxes that really run, usage and bills."""
