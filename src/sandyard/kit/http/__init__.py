"""Code that the endpoints of all parts share."""
