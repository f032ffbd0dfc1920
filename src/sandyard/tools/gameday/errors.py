"""Errors that prevent a game day from running; they are not a verdict."""


class GameDayError(Exception):
    """What was missing, in a line for the person who called."""
