"""Sign-up by mail, and invitations."""
