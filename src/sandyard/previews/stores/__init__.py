"""The engine that keeps files and what is known of sandboxes."""
