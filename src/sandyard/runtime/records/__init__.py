"""Runs and archives on this node's disk."""
