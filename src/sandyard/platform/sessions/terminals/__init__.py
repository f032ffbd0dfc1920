"""Terminals of a sandbox."""
