"""Files of a sandbox."""
