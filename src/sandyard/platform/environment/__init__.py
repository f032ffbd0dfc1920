"""Variables and secrets of projects and sandboxes, which commands and programs find set."""
