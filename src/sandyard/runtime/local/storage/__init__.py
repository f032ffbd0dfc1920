"""Where workspaces are stored while they run and after their stop."""
