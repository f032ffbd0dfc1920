"""Clients have budgets, and leases count their replacements."""

oldest_code = "0013"
"""It counts neither: what it does is not limited."""
