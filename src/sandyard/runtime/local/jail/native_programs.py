"""The programs by which machines and commands start: `native/*.c`, prebuilt for x86-64 and arm64.

Forking a supervisor or an agent, interpreters of many pages, costs several times as much as
spawning a process without a copy of it. But limits and users can't be set between a spawn and its
exec; so a program of two kilobytes is spawned, and does the rest. It needs nothing of the root file
system that it is in. As a machine's first process it can't be killed by what runs there, `kill -9
-1` included, and leaves no zombies of those that nobody else waits for.
"""

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "native"
_MAY_BE_RUN = 0x10
"""MFD_EXEC, which older kernels imply and do not know."""
FOLDER = "/run/sandyard/root"
"""The only folder where a file can change its user's identity."""
SUDO = f"{FOLDER}/sudo"
_SCRIPT = f"{FOLDER}/options"
_OPTIONS = """#!/bin/sh
who=root folder= shell=
while [ $# -gt 0 ]; do
    case "$1" in
    -u | --user) who=$2 && shift ;;
    --user=*) who=${1#*=} ;;
    -g | --group | -p | --prompt | -C | -h | --host | -T) shift ;;
    -D | --chdir) folder=$2 && shift ;;
    -i | --login) shell=login ;;
    -s | --shell) shell=plain ;;
    -l | --list | -v | --validate | -k | -K) [ $# -gt 1 ] || exit 0 ;;
    --preserve-env* | --non-interactive | --set-home | --stdin | --background) ;;
    --) shift && break ;;
    -u*) who=${1#-u} ;;
    -[EnHSbAP]*) ;;
    -*) echo "sudo: unknown option: $1" >&2 && exit 1 ;;
    [A-Za-z_]*=*) export "$1" ;;
    *) break ;;
    esac
    shift
done
who=${who#\\#}
line=$(awk -F: -v who="$who" '$1 == who || $3 == who' /etc/passwd 2>/dev/null | head -n 1)
[ -n "$line" ] || { echo "sudo: unknown user $who" >&2 && exit 1; }
IFS=: read -r USER _ uid gid _ HOME SHELL <<EOF
$line
EOF
export USER HOME SHELL LOGNAME="$USER" SUDO_USER=user SUDO_UID=1000 SUDO_GID=1000
unset IFS
[ -z "$folder" ] || cd "$folder" || exit 1
[ "$shell" != login ] || cd "$HOME" || exit 1
case "$shell" in
login) [ $# -eq 0 ] && set -- "${SHELL:-/bin/sh}" -l || set -- "${SHELL:-/bin/sh}" -l -c "$*" ;;
plain) [ $# -eq 0 ] && set -- "${SHELL:-/bin/sh}" || set -- "${SHELL:-/bin/sh}" -c "$*" ;;
esac
[ $# -gt 0 ] || { echo "usage: sudo [-u user] command" >&2 && exit 1; }
[ "$uid" != 0 ] || exec "$@"
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"
"""


def start_program() -> bytes | None:
    """`native/start.c`; None if there is none for this processor."""
    return _program("start")


def become_words(
    uid: int | None, limits: Mapping[int, int], descriptors: Iterable[int]
) -> list[str]:
    """The words before a program and its arguments, whose first is its path: it gets these limits,
    this user, these descriptors and the standard streams. It ends with this process, even if that
    has already ended, and with 127 if it can't be run."""
    user = "-" if uid is None else str(uid)
    pairs = (str(each) for limit in limits.items() for each in limit)
    inherited = map(str, sorted({0, 1, 2, *descriptors}))
    return ["become", user, str(os.getpid()), *pairs, "--", *inherited, "--"]


def unshare_words(namespaces: int, *, writer: int, reader: int) -> list[str]:
    """Enters new namespaces, writes a byte to one descriptor, and exits when the other is
    readable."""
    return ["unshare", str(namespaces), str(writer), str(reader)]


@contextmanager
def program_file(content: bytes) -> Iterator[str]:
    """The path of an in-memory file from which a child of this process can run the program. If the
    host forbids that, it is a PermissionError, here or on exec."""
    try:
        file = os.memfd_create("program", os.MFD_CLOEXEC | _MAY_BE_RUN)
    except PermissionError:
        raise
    except OSError:
        file = os.memfd_create("program")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


@cache
def _program(name: str) -> bytes | None:
    try:
        return (_FOLDER / f"{name}.{platform.machine()}").read_bytes()
    except FileNotFoundError:
        return None


def sudo_files() -> Mapping[str, tuple[bytes, int]]:
    """The content and mode of each, by path; none if the processor is not supported."""
    program = _program("sudo")
    if program is None:
        return {}
    return {SUDO: (program, 0o4111), _SCRIPT: (_OPTIONS.encode(), 0o444)}
