"""Quotas: an account's limits, and what it uses."""
