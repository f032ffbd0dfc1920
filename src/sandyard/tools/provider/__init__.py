"""A simulated cloud provider, and the conformance check of a real one."""
