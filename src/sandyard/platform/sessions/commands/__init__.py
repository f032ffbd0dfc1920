"""Commands in a sandbox, and their output."""
