"""The interface that isolates a command from the host, and the variant without isolation."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(slots=True)
class WrappedCommand:
    """A command to be run from outside, and the descriptors that it needs to inherit."""

    uid: int | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    descriptors: list[int] = field(default_factory=list)

    def add_content(self, content: bytes) -> int:
        """A descriptor from which bubblewrap reads this content."""
        descriptor = os.memfd_create("sandyard")
        self.descriptors.append(descriptor)
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def add_descriptor(self, descriptor: int) -> int:
        """A duplicate of the descriptor, to be inherited."""
        self.descriptors.append(os.dup(descriptor))
        return self.descriptors[-1]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


class Isolation(Protocol):
    """Isolates a command from the host."""

    @property
    def folder(self) -> str:
        """The workspace as a command inside sees it."""
        ...

    @property
    def has_root(self) -> bool:
        """Whether there is a root inside, beside the user, whose ownership of files must be
        preserved."""
        ...

    def wrap(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,
        capabilities: Iterable[str] = (),
    ) -> WrappedCommand:
        """The command in isolation, with the added sources visible to it."""
        ...


@dataclass(frozen=True, slots=True)
class NoIsolation:
    """SANDBOX_ISOLATION=none: a command runs as the server's user and sees what the server sees."""

    workspace: Path

    @property
    def folder(self) -> str:
        return str(self.workspace)

    @property
    def has_root(self) -> bool:
        return False

    def wrap(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,  # noqa: ARG002 - everything is seen
        capabilities: Iterable[str] = (),  # noqa: ARG002 - it has those of the server
    ) -> WrappedCommand:
        plain = {"PATH": os.environ.get("PATH", PATH), "HOME": self.folder}
        return WrappedCommand(None, list(command), {**plain, **environment}, self.workspace)
