"""Engines that keep the pool; each keeps the promises of `ports.PoolStore`."""
