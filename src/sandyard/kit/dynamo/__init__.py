"""What every part needs of DynamoDB, and how shared things are kept there."""
