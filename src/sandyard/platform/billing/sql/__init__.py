"""Bills on SQLite or PostgreSQL."""
