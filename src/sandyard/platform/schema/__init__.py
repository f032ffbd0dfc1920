"""The Platform's tables and their migrations."""
