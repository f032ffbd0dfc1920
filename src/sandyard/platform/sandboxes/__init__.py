"""Sandboxes: made from templates, started, watched, stopped and stored."""
