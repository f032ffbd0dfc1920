"""Tickets in SQL and on DynamoDB."""
