"""The Broker's endpoints: headers and bodies in, use cases called, JSON out."""
