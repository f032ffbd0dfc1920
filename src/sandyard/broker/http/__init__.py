"""The Broker's doors: headers and bodies in, use cases called, JSON out."""
