"""The web console: pages over the API, with the credential of the logged-in user.

It has no state and no rights of its own. A page calls the server's own API with the credential of
its viewer, so nothing can be seen or done here that the API would refuse.
"""
