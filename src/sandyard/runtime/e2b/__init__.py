"""Machines at E2B, each a sandbox there, known by records here."""
