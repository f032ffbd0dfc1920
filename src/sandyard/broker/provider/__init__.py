"""The cloud provider that owns the sandboxes: our client for it, and a simulator of it."""
