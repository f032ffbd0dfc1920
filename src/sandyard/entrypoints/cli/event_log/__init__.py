"""Commands that read and export events."""
