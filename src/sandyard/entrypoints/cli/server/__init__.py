"""Commands that run on the machine of a server: serving, jobs, databases, backups."""
