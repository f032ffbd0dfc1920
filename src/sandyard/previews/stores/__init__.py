"""The store of files and previews."""
