"""The endpoints that issue access tokens."""
