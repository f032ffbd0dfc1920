"""A simulated fleet of unreliable devices, and the check of what the server stored."""
