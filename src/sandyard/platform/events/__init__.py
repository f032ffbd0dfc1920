"""Events of all entities: how they are written, read and verified."""
