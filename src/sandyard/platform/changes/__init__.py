"""How use cases change entities."""
