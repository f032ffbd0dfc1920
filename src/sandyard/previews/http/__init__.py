"""The doors of Previews: files, status and sync, and the page that shows them."""
