"""Rates in the format of settings: `10/minute`, `10 per 15 minutes`."""

import re
from dataclasses import dataclass
from datetime import timedelta

_FORM = re.compile(r"\s*(\d+)\s*(?:/|per)\s*(\d+)?\s*(second|minute|hour|day)s?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """A number of attempts per window, which begins with the first of them."""

    amount: int
    window: timedelta

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """Raises ValueError if malformed."""
        found = _FORM.fullmatch(text)
        if found is None or not int(found[1]) or found[2] == "0":
            raise ValueError("must be like `10/minute` or `2 per second`")
        return cls(int(found[1]), int(found[2] or 1) * timedelta(**{f"{found[3]}s": 1}))
