"""The connection to a program in a sandbox: HTTP/1.1 and WebSocket."""
