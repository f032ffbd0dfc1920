"""Delivers events from the logs to the sinks: at least once, in order per subject."""
