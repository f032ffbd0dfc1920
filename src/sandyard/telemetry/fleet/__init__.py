"""A simulated fleet that behaves as badly as real boards, and the check of what came of it."""
