"""Rehearsals: a fault under load on this machine, the promises watched, the alerts awaited."""
