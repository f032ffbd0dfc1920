"""The stores of the pool; each implements `ports.PoolStore`."""
