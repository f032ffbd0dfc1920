"""A machine's root file system: an imported one or the host's, its settings and users."""
