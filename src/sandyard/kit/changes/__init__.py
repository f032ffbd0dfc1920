"""A change of an entity: transitions, their events, pruning and verification."""
