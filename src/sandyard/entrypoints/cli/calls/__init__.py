"""Commands that are one call of the API: a row each."""
