"""Bills: usage by the day, each day's once."""
