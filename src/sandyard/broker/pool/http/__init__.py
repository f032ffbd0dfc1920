"""Calls of tracks and operators about sandboxes."""
