"""The supervisor: the process beside each machine that runs it to its end."""
