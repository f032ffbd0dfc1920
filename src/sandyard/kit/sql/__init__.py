"""What every part needs of SQLite and PostgreSQL, and how shared things are kept there."""
