"""Where programs come from: git repositories and built-in templates."""
