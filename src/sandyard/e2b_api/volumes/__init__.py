"""E2B's volumes, which are the Platform's."""
