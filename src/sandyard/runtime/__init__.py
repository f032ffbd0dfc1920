"""Runs programs for sandboxes and previews, and tells the truth about how they ended."""
