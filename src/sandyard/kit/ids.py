"""Generators of identifiers."""

import hashlib
import itertools
import random
import re
import secrets
import string
import uuid
import zlib
from collections.abc import Callable

IdMaker = Callable[[], str]

ALPHABET = string.ascii_lowercase + string.digits
_SHORT = frozenset({"not", "usg", "mtr", "bil", "sgn"})
"""Prefixes of resources so numerous that shorter ids are easier to read."""
_SANDBOX_NAMESPACE = uuid.UUID("6f0e3e0c-6f0b-5b57-9a3c-2f6d7f1f7c11")


def request_id() -> str:
    """Not secret: it only distinguishes requests."""
    return f"req_{random.getrandbits(64):016x}"


def holder_id() -> str:
    """An id for this process, for leases that only their holder may renew."""
    return random_text(ALPHABET, 16)


def uuid4() -> str:
    return str(uuid.uuid4())


class EventIds:
    """Generates ids that sort by time, and within one process in order of generation."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def __call__(self, at_ms: int) -> str:
        """12 digits of time, 6 of a counter and 8 random, all hexadecimal."""
        chance = random.getrandbits(32)
        return f"{at_ms:012x}{next(self._count) & 0xFFFFFF:06x}{chance:08x}"


def first_event_id(at_ms: int) -> str:
    """A lower bound for ids generated at this time or later, and above all earlier ones."""
    return f"{max(0, at_ms):012x}"


def subject_key(subject: str) -> int:
    """A small number to index subjects by. Subjects are long and random: indexing them directly
    would write a separate page for almost every event."""
    return zlib.crc32(subject.encode())


def device_api_key() -> str:
    """32 random bytes, as 64 hexadecimal digits."""
    return secrets.token_hex(32)


def sandbox_id(external_id: str) -> str:
    """The same external id always gives the same sandbox id, so duplicates are impossible."""
    return str(uuid.uuid5(_SANDBOX_NAMESPACE, external_id))


def resource_id(prefix: str) -> str:
    """Such as `prj-` and 17 letters and digits; 12 for very numerous resources."""
    return f"{prefix}-{random_text(ALPHABET, 12 if prefix in _SHORT else 17)}"


def repeated_id(prefix: str, *of: str) -> str:
    """The id of a resource that is made once: the same texts always give the same id."""
    return f"{prefix}-{repeated_text(ALPHABET, 12 if prefix in _SHORT else 17, *of)}"


def repeated_text(letters: str, length: int, *of: str) -> str:
    """At most 64 letters: the same texts always give the same."""
    digest = hashlib.sha512("\n".join(of).encode()).digest()
    return "".join(letters[byte % len(letters)] for byte in digest[:length])


def is_resource_id(prefix: str, text: str) -> bool:
    """Whether this has the form of our ids; if not, no lookup is needed."""
    return bool(re.fullmatch(rf"{prefix}-[a-z0-9]{{12,17}}", text))


def account_id() -> str:
    """12 digits, the first not 0. Collisions are possible."""
    return str(10**11 + secrets.randbelow(9 * 10**11))


def is_account_id(text: str) -> bool:
    return bool(re.fullmatch("[0-9]{12}", text, re.ASCII))


def token_id() -> str:
    """Identifies a token; not secret."""
    return random_text(ALPHABET, 12)


def mail_token() -> str:
    return secrets.token_urlsafe(32)


def random_text(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))
