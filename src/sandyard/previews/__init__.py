"""Previews: a project in a sandbox, and a new one only when the last has really ended."""
