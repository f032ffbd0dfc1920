"""Simulators, checks, the demo and game days: not the product, loaded only by their commands."""
