"""What a headless browser shows of a preview."""
