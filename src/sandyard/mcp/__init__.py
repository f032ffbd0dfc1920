"""MCP: sandboxes, previews and leases as tools of an agent's model, over the server's own API."""
