"""Watching folders for the agent, by the kernel's inotify; a child of the agent for each watch."""

import json
import os
import select
import struct
from collections.abc import Iterator, Sequence

from sandyard.runtime.guest import DRAFT, Paths
from sandyard.runtime.local.host.system_calls import call
from sandyard.runtime.local.ipc.packets import Answer

_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 65536
_ATTRIB, _MOVED_FROM, _MOVED_TO = 0x4, 0x40, 0x80
_MODIFY, _CREATE, _DELETE, _IS_FOLDER = 0x2, 0x100, 0x200, 0x40000000
_ONLY_FOLDERS = 0x01000000
_WATCHED = _ATTRIB | _MODIFY | _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
_KINDS = (
    (_CREATE | _MOVED_TO, "created"),
    (_MODIFY, "written"),
    (_DELETE, "removed"),
    (_MOVED_FROM, "renamed"),
    (_ATTRIB, "attributes"),
)
_NEW, _REPLACED = ("created", "attributes", "written"), ("written", "attributes")
_MOST_FOLDERS = 8192


def watch(paths: Paths, *, path: str, recursive: bool) -> Answer:
    """A pipe with a line of JSON for each change, until its reader closes it."""
    watcher = _Watcher(paths, recursive=recursive)
    watcher.add(paths.real_path(path))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    return Answer(descriptors=(reader,), then=lambda: watcher.run(writer))


class _Watcher:
    def __init__(self, paths: Paths, *, recursive: bool) -> None:
        self._paths = paths
        self._recursive = recursive
        self._inotify = call("inotify_init1", os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._names: dict[str, set[str]] = {}
        """The names in each folder, to tell a replaced file from a new one."""
        self._drafts: set[int] = set()
        """Cookies of the events that renamed drafts."""

    def add(self, folder: str) -> None:
        flags = _WATCHED | _ONLY_FOLDERS
        number = call("inotify_add_watch", self._inotify, os.fsencode(folder), flags)
        self._folders[number] = folder
        self._names[folder] = set(_names_in(folder))
        if self._recursive and len(self._folders) < _MOST_FOLDERS:
            for below in _folders_in(folder):
                self._add_if_there(below)

    def _add_if_there(self, folder: str) -> None:
        try:
            self.add(folder)
        except OSError:
            return

    def run(self, writer: int) -> None:
        waiting = select.poll()
        waiting.register(self._inotify, select.POLLIN)
        waiting.register(writer, 0)  # reports when the reader is gone
        try:
            while writer not in dict(waiting.poll()):
                for change in self._changes():
                    os.write(writer, f"{json.dumps(change)}\n".encode())
        finally:
            os.close(writer)
            os.close(self._inotify)

    def _changes(self) -> Iterator[dict[str, str]]:
        content = os.read(self._inotify, _BUFFER_BYTES)
        while content:
            number, mask, cookie, length = _EVENT.unpack_from(content)
            name = content[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
            content = content[_EVENT.size + length :]
            if number in self._folders and name:
                folder, entry = self._folders[number], os.fsdecode(name)
                path = os.path.join(folder, entry)
                if self._recursive and mask & _IS_FOLDER and mask & (_CREATE | _MOVED_TO):
                    self._add_if_there(path)
                for kind in self._kinds(folder, entry, mask, cookie):
                    yield {"path": self._paths.as_seen(path), "kind": kind}

    def _kinds(self, folder: str, entry: str, mask: int, cookie: int) -> Sequence[str]:
        """A file written as a draft is reported as if it had been written in place."""
        if entry.startswith(DRAFT):
            if mask & _MOVED_FROM:
                self._drafts.add(cookie)
            return ()
        names = self._names.setdefault(folder, set())
        is_new = entry not in names
        if mask & (_CREATE | _MOVED_TO):
            names.add(entry)
        elif mask & (_DELETE | _MOVED_FROM):
            names.discard(entry)
        if mask & _MOVED_TO and cookie in self._drafts:
            self._drafts.discard(cookie)
            return _NEW if is_new else _REPLACED
        return [kind for bits, kind in _KINDS if mask & bits]


def _names_in(folder: str) -> Sequence[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def _folders_in(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from [each.path for each in entries if each.is_dir(follow_symlinks=False)]
    except OSError:
        return
