"""Probes: whether a sandbox is fit for use, by a job and at a claim."""
