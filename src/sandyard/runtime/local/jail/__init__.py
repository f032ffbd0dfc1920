"""What isolates a machine: bubblewrap, namespaces, seccomp, its first programs and its users."""
