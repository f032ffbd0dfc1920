"""The parts' access to E2B's SDK."""
