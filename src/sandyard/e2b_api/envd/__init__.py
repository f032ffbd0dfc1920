"""The API of E2B's agent inside a sandbox: files and processes."""
