"""Quotas: what an account may have at once, and what it has."""
