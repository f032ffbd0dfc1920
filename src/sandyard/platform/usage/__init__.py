"""Usage: which sandboxes ran, for how long, and at what cost."""
