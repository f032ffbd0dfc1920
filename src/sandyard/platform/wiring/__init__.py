"""The Platform, wired from the settings."""
