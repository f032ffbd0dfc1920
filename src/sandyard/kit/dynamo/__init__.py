"""DynamoDB access and shared stores for all parts."""
