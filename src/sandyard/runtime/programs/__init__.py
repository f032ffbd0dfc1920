"""Runs a program in a machine, from its start to its end; the same for all machines."""
