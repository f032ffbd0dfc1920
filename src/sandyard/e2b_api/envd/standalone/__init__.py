"""The API of E2B's agent over the plain files and processes of the machine that it runs in.

`python -m sandyard.e2b_api.envd.standalone` serves it. It needs Linux, Python 3.11, this package,
the local runtime's operations on files and commands, and Starlette, h11 and python-multipart, which
are pure Python: all of it can be carried into a machine.
"""
