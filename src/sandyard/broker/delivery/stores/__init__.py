"""Webhooks and the positions of sinks in SQL and on DynamoDB."""
