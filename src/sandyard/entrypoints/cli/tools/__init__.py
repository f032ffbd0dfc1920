"""Commands of the tools: the demo, game days and the simulated provider."""
