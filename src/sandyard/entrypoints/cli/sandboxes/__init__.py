"""sandboxes"""
