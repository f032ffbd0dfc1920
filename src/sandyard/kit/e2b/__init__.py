"""E2B's SDK as the parts use it."""
