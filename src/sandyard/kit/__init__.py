"""Code that all parts share; it depends on none of them."""
