"""What the endpoints of every part share."""
