"""The web console: pages that show and do what the API does, for whoever is logged in.

It has no state and no rights of its own. A page calls the server's own API with the credential of
its viewer, so nothing can be seen or done here that the API would refuse.
"""
