"""The pool: sandboxes and their leases, from the claim to the deletion."""
