"""Why a game day could not be held; that is no verdict."""


class GameDayError(Exception):
    """What was missing, in a line for the person who called."""
