"""Engines that keep devices, readings and keys; each keeps the promises of `ports`."""
