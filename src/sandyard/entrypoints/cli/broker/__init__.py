"""Commands for the Broker's pool, clients and provider."""
