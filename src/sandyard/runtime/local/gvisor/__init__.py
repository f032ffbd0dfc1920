"""Machines with a kernel of their own: gVisor's `runsc`."""
