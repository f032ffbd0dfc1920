"""The agent: the process that acts inside a machine, with the rights of the machine's user."""
