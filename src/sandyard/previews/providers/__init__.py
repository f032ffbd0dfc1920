"""The providers of previews."""
