"""Alert rules with their durations shortened, so that minutes of production fit a game day."""

import re

SHRINK = 60
_SHORTEST_SEC = {"for": 1, "window": 7}
"""A window covers three scrapes, so that one may be missed."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FOR = re.compile(r"(?P<before>^\s*for:\s*)(?P<count>\d+)(?P<unit>[smhd])[ ]*$", re.MULTILINE)
_WINDOW = re.compile(r"(?P<before>\[|\boffset )(?P<count>\d+)(?P<unit>[smhd])\b")


def shortened(rules: str) -> str:
    """Each `for` and each window divided by sixty: a minute becomes a second. Expressions,
    thresholds and names are unchanged."""
    shorter_for = _FOR.sub(lambda found: _shorter(found, _SHORTEST_SEC["for"]), rules)
    return _WINDOW.sub(lambda found: _shorter(found, _SHORTEST_SEC["window"]), shorter_for)


def _shorter(found: re.Match[str], shortest_sec: int) -> str:
    seconds = int(found["count"]) * _UNITS[found["unit"]] // SHRINK
    return f"{found['before']}{max(seconds, shortest_sec)}s"
