"""A simulated fleet that behaves as badly as real boards."""
