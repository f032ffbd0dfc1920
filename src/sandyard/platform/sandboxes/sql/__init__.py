"""Sandboxes on SQLite or PostgreSQL."""
