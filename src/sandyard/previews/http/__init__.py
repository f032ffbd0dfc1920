"""The endpoints of Previews: files, status and sync, and the page that shows them."""
