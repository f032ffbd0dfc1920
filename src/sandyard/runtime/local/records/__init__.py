"""What server and supervisor share on disk."""
