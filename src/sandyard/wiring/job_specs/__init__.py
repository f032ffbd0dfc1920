"""The jobs of each part by name, known without importing the part."""
