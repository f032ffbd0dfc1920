"""Settings, clock and ids in; the wired parts out. The only place that picks an engine."""
