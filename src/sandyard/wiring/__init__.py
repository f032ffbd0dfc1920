"""What the wiring of every part shares: the description of a part, engines, addresses."""
