"""E2B's API over the Platform's sandboxes: its SDKs work here as they are."""
