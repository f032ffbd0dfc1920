"""The public keys with which accounts log in to their sandboxes by SSH."""
