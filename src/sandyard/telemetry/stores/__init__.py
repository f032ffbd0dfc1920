"""The stores of devices, readings and keys; each implements `ports`."""
