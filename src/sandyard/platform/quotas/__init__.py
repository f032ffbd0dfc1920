"""Quotas: an account's limits, and its use."""
