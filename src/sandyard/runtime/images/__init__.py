"""Images of containers: what they are called, where they are pulled from, and their parts."""
