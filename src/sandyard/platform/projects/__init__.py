"""Projects, which keep an account's sandboxes in order."""
