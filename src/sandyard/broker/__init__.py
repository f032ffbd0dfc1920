"""The Broker: leases pre-created cloud sandboxes to lab tracks, one each, never twice."""
