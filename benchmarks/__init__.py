"""Measurements of Sandyard on this machine; they print a table and never fail a build."""
