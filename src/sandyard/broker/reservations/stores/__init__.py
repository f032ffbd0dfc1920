"""Reservations in SQL and on DynamoDB."""
