"""Variables and secrets of projects and sandboxes, which are set for commands and programs."""
