"""A session in a running machine: its files, processes and ports."""
