"""One control plane for short-lived environments."""

__version__ = "0.3.0.dev0"
