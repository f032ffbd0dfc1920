"""Work that is shared, bounded, or done beside an answer."""
