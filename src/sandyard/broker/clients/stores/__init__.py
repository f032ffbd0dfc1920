"""Clients and their limits in SQL and on DynamoDB."""
