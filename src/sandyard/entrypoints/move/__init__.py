"""Moves the parts' data from one engine to another."""
