"""Sessions in a machine, by requests: to its supervisor, or to what answers like one."""
