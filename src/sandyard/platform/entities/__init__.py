"""Entities of accounts: how each noun changes, finds and lists them."""
