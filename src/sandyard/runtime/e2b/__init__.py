"""The runtime at E2B: each program in a sandbox there, known by records here."""
