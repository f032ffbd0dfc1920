"""The agent's operations on files: descriptors and pipes for what does not fit in an answer. They
run inside the machine with its user's rights, so that a path or a link can lead nowhere else."""

import json
import os
import tarfile
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from sandyard.runtime.guest import Paths, files, transfers
from sandyard.runtime.guest.files import apply_changes
from sandyard.runtime.local.agent.unpack import unpack
from sandyard.runtime.local.agent.watch import watch
from sandyard.runtime.local.ipc.packets import END, Answer

Operation = Callable[..., Answer]


def quick_operations(paths: Paths) -> dict[str, Operation]:
    names = ("stat_file", "commit_file", "discard_file", "set_attributes", "make_folder", "move")
    return {
        **{name: partial(_result, getattr(files, name), paths) for name in names},
        "open_file": partial(_descriptor, files.open_file, paths),
        "create_file": partial(_descriptor, files.create_file, paths),
    }


def slow_operations(paths: Paths) -> dict[str, Operation]:
    slow = (apply, list_folder, read_tar, write_tar, unpack, watch)
    return {
        "remove": partial(_result, files.remove, paths),
        **{each.__name__: partial(each, paths) for each in slow},
    }


def apply(paths: Paths, archive: int, *, deleted: list[str]) -> Answer:
    """Delete these, and write the files of a tar archive, each atomically."""
    with (
        os.fdopen(os.dup(archive), "rb") as content,
        tarfile.open(fileobj=content, mode="r|") as packed,
    ):
        written = {
            entry.name: file.read() for entry in packed if (file := packed.extractfile(entry))
        }
    apply_changes(paths.workspace, written, deleted)
    return Answer()


def list_folder(paths: Paths, **arguments: Any) -> Answer:
    """The entries as JSON lines through a pipe: they may not fit in one packet."""
    infos = files.list_folder(paths, **arguments)
    lines = (f"{json.dumps(info)}\n".encode() for info in infos)
    return _through_pipe(lambda pipe: pipe.writelines(lines))


def read_tar(paths: Paths, *, path: str) -> Answer:
    names = transfers.enter_folder(paths, path=path)
    return _through_pipe(lambda pipe: transfers.pack(names, pipe))


def write_tar(paths: Paths, archive: int, *, path: str) -> Answer:
    """Unpack the archive from the descriptor, up to end of file."""
    with os.fdopen(os.dup(archive), "rb") as content:
        transfers.unpack(paths, content, path=path)
    return Answer()


def _result(operation: Callable[..., Any], paths: Paths, **arguments: Any) -> Answer:
    return Answer(operation(paths, **arguments))


def _descriptor(operation: Callable[..., Any], paths: Paths, **arguments: Any) -> Answer:
    result, descriptor = operation(paths, **arguments)
    return Answer(result, descriptors=(descriptor,))


def _through_pipe(write: Callable[[IO[bytes]], None]) -> Answer:
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def then() -> None:
        with os.fdopen(writer, "wb") as pipe:
            write(pipe)
            pipe.write(END)

    return Answer(descriptors=(reader,), then=then)
