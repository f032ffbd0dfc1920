"""The Broker, wired from the settings."""
