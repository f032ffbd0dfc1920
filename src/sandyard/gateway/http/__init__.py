"""The endpoints that make access tokens."""
