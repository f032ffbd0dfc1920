"""Commands for devices and their readings."""
