"""The gateway: what listens inside sandboxes and previews, each at a host of its own."""
