"""What E2B's agent answers inside a sandbox: files and processes."""
