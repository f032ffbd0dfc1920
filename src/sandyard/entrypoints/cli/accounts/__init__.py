"""Commands for accounts: login, usage, users."""
