"""Machines as Pods of a Kubernetes cluster: one plain Pod for each run, which any server finds."""
