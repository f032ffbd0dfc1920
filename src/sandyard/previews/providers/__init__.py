"""Where previews run: the port, and what stands behind it."""
