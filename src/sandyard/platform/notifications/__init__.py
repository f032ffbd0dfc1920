"""Notifications, made by what happens to an account and its things."""
