"""One way into machines that are elsewhere: E2B's envd, and our guest code inside them."""
