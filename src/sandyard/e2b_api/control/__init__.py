"""The control API: sandboxes, templates and teams."""
