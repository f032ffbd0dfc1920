"""Versions of projects at addresses of their own: published, read by everybody."""
