"""Projects, which group an account's sandboxes."""
