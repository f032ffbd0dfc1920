"""What owners do inside their running sandboxes: commands, files and terminals."""
