"""What runs in the server: starts supervisors, sends them requests, reads their records."""
