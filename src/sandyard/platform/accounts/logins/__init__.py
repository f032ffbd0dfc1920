"""Limits of failed logins."""
