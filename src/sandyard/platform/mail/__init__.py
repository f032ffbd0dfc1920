"""Mail: how it is sent, and the templates of what is sent."""
