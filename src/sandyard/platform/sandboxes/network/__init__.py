"""The network of sandboxes: egress and ingress rules, and the gateway's way to their ports."""
