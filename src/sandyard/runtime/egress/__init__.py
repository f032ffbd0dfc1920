"""The egress proxy: it checks each connection and request, for one machine here or for all Pods."""
