"""Usage: what ran, for how long, and what it cost."""
