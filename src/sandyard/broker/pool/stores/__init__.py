"""The rows and leases of the pool in SQL and on DynamoDB: claims, pages, items."""
