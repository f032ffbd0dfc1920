"""This host's kernel: processes, sockets, devices and system calls. Every process may use it."""
