"""A serving process: its data dir, parts, listeners, connections, schedule and secrets."""
