"""What endpoints of the Platform share."""

PREFIX = "/api/v1"
"""Of all paths; here, where it is imported without the Platform."""
