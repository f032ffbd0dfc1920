"""Runs the programs of sandboxes and previews, and records how they ended."""
