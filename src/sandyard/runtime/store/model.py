"""The names in the store of files, and what of it is garbage, without any I/O.

An *object* is the content of one file, named by its SHA-256 sum and a suffix of its own. A
*reference* says which object a snapshot or an archive has. An object without a reference is
*marked*, and deleted once it has been marked for the grace period.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sandyard.runtime.store.ports import StoredObject

Kind = Literal["snapshots", "archives", "uploads", "images"]

OBJECTS, MARKS, REFERENCES = "objects/", "unreferenced/", "references/"
COMPRESSED = "z"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Kind
    id: str
    object: str
    size_bytes: int
    """Of the file, before the store compressed it."""
    created_at: float = 0

    @property
    def key(self) -> str:
        return f"{references_to(self.kind, self.id)}{self.size_bytes}-{self.object}"

    @property
    def sha256(self) -> str:
        return self.object.partition(".")[0]

    @property
    def is_compressed(self) -> bool:
        """By the store: a file that is already compressed is stored as it is."""
        return self.object.endswith(COMPRESSED)


def is_id(given: str) -> bool:
    return _NAME.fullmatch(given) is not None


def references_to(kind: Kind, given_id: str) -> str:
    return f"{REFERENCES}{kind}/{given_id}/"


def read_reference(found: StoredObject) -> Reference:
    _, kind, given_id, value = found.key.split("/")
    size, _, name = value.partition("-")
    return Reference(kind, given_id, name, int(size), found.modified_at)  # type: ignore[arg-type]


def new_object(sha256: str, nonce: str, *, is_compressed: bool) -> str:
    """Each upload has a name of its own, so that what was found unreferenced is never needed
    again: a delete that comes late hits nothing."""
    return f"{sha256}.{nonce}{COMPRESSED if is_compressed else ''}"


def object_key(name: str) -> str:
    return f"{OBJECTS}{name[:2]}/{name}"


def name_of(key: str) -> str:
    return key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Garbage:
    to_mark: frozenset[str]
    to_unmark: frozenset[str]
    to_delete: frozenset[str]


def find_garbage(
    marked_at: Mapping[str, float],
    objects: Iterable[str],
    referenced: Iterable[str],
    *,
    now: float,
    grace_sec: float,
) -> Garbage:
    """All three by the names of objects. `referenced` must have been read last: who stores a file
    looks for marks first, and then has the whole grace period for its reference."""
    known, wanted = set(objects), set(referenced)
    unwanted = known - wanted
    due = {name for name, at in marked_at.items() if at + grace_sec <= now}
    return Garbage(
        to_mark=frozenset(unwanted - marked_at.keys()),
        to_unmark=frozenset(marked_at.keys() - unwanted),
        to_delete=frozenset(unwanted & due),
    )
