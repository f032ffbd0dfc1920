"""Messages and pipes between server, supervisor, agent and egress proxy."""
