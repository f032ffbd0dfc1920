"""Notifications for an account about its objects."""
