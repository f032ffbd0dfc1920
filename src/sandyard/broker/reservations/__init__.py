"""Reservations: sandboxes set aside for some tracks during a period."""
