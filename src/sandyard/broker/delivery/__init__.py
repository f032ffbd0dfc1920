"""Events on their way from the logs to the sinks: at least once, in order per subject."""
