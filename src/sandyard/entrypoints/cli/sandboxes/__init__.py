"""Commands for the sandboxes of an account."""
