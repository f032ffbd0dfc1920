"""Accounts: sign-up by mail, logins, roles."""
