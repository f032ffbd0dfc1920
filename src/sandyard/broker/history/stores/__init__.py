"""Samples of the pool in SQL and on DynamoDB."""
