"""Administration of accounts."""
