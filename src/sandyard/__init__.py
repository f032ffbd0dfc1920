"""One control plane for short-lived environments."""

__version__ = "0.1.0"
