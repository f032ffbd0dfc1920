"""SQLite and PostgreSQL access and shared stores for all parts."""
