"""What acts inside a machine at E2B, with the rights of its user.

It is sent there and run by the machine's own `python3`, 3.11 or later, so it knows the standard
library and itself, and nothing else of this project.
"""
