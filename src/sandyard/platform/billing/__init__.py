"""Bills: usage by day, each day billed once."""
