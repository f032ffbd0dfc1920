"""Logins to sandboxes by SSH: shells, commands, files and forwarded ports."""
