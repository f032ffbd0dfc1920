"""Listings with a filter, an order and pages, in one way for every noun."""
