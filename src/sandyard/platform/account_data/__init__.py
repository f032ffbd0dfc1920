"""All that is an account's, whatever noun keeps it: taken along by its owner, and removed."""
