"""Named clients: who may call, with which token, scope and limits."""
