"""One control plane for short-lived environments."""

__version__ = "0.2.0"
