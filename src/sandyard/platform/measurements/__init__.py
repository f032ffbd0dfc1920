"""Resource use of sandboxes, measured from their real processes."""
