"""Sandboxes in E2B's API: their life, their network, their metrics and the way into them."""
