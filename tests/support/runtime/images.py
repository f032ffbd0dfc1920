"""Images for the tests, of what this host has: a static one, and ones of glibc and of musl."""

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.runtime.root_file_systems import gzipped, link, member, small_root, tar

BUSYBOX = Path("/bin/busybox")
"""Debian's busybox-static."""
MUSL_SHELL = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {  /* what the tests' line does, and waits */
    FILE *made = fopen("/made", "w");
    fprintf(made, "by %s\\n", getenv("HOME"));
    fclose(made);
    sleep(60);
    return 0;
}
"""
SERVE = (
    "/busybox id -u > /data/who; /busybox id -g >> /data/who; /busybox pwd >> /data/who; "
    'echo "$GREETING $HOME" >> /data/who; exec /busybox httpd -f -p 80 -h /data'
)
SETTINGS: Mapping[str, Any] = {
    "Entrypoint": ["/busybox", "sh"],
    "Cmd": ["-c", SERVE],
    "User": "app:www",
    "WorkingDir": "/data/inner",
    "ExposedPorts": {"80/tcp": {}},
    "Env": ["GREETING=hello", "PATH=/own"],
}


def distroless() -> bytes:
    """A layer of a single static program, two files and a folder of its user; no shell."""
    return gzipped(
        tar(
            member("busybox", BUSYBOX.read_bytes()),
            member("etc/passwd", b"root:x:0:0::/root:/x\napp:x:101:7::/home/app:/x\n"),
            member("etc/group", b"www:x:33:\n"),
            member("data", uid=101, gid=33),
        )
    )


def with_shell() -> bytes:
    """A layer with a shell and the usual commands, all of one static program, as in Alpine."""
    names = (
        "sh",
        "cat",
        "ls",
        "id",
        "mkdir",
        "echo",
        "cp",
        "chown",
        "dirname",
        "printf",
        "env",
        "mv",
        "sleep",
    )
    busybox = member("bin/busybox", BUSYBOX.read_bytes())
    return gzipped(tar(busybox, *(link(f"bin/{name}", "busybox") for name in names)))


@cache
def musl() -> bytes:
    """A layer with musl's loader and a shell of its own that needs it, and nothing else."""
    with TemporaryDirectory() as folder:
        source, program = Path(folder, "sh.c"), Path(folder, "sh")
        source.write_text(MUSL_SHELL)
        subprocess.run(["musl-gcc", "-o", str(program), str(source)], check=True)
        shell = member("bin/sh", program.read_bytes())
    [loader] = Path("/lib").glob("ld-musl-*.so.1")
    return gzipped(tar(member(f"lib/{loader.name}", loader.resolve().read_bytes()), shell))


def glibc() -> bytes:
    """A layer with this host's shell and the libraries that it needs."""
    return gzipped(tar(*small_root()))


def with_bash() -> bytes:
    """The same with bash, the commands that E2B's builds use, and a user."""
    commands = ("cp", "mkdir", "chown", "chmod", "dirname", "id", "touch", "rm", "env", "true")
    users = member("etc/passwd", b"root:x:0:0::/root:/x\napp:x:101:33::/srv:/x\n")
    return gzipped(tar(*small_root("bash", *commands), users, member("tmp", mode=0o1777)))
