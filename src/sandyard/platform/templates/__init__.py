"""Templates, from which sandboxes are made: official, public and private ones."""
