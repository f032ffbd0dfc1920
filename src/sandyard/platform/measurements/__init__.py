"""What sandboxes take of the machine, measured from their real processes."""
