"""Runs of sandboxes: starts, deadlines, ends, warm machines and silent nodes."""
