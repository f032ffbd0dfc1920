"""`sudo` in a sandbox with its own root: a program that becomes root, and a script that parses
its options."""

import ctypes
import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path

from sandyard.runtime.local.host.system_calls import call
from sandyard.runtime.local.jail.elf import BASE, HEADER_BYTES, elf_file

FOLDER = "/run/sandyard/root"
"""The only folder where a file can change its user's identity."""
SUDO = f"{FOLDER}/sudo"
_SCRIPT = f"{FOLDER}/options"
_NO_DEV = 4
_SIZE = "mode=755,size=64k,nr_inodes=8"
_X86_64 = 62
_EXECVE, _EXIT, _SETGROUPS, _SETRESUID, _SETRESGID = 59, 60, 116, 117, 119
_SYSCALL = b"\x0f\x05"
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


def sudo_files() -> Mapping[str, bytes]:
    """By name; none if the processor is not supported."""
    if platform.machine() != "x86_64":
        return {}
    return {SUDO: elf_file(_X86_64, _program()), _SCRIPT: _OPTIONS.encode()}


def install_sudo(files: Mapping[str, bytes]) -> None:
    """Runs in the sandbox, as root of the namespace that owns its mounts; does nothing if already
    installed."""
    if not files or os.path.ismount(FOLDER):
        return
    call("mount", b"tmpfs", FOLDER.encode(), b"tmpfs", ctypes.c_ulong(_NO_DEV), _SIZE.encode())
    for path, content in files.items():
        file = Path(path)
        file.write_bytes(content)
        file.chmod(0o4111 if path == SUDO else 0o444)


def _program() -> bytes:
    """setgroups(0, 0), setresgid(0, 0, 0), setresuid(0, 0, 0), then the script with the same words
    and variables: `argv[0]`, which is replaced by the script's path, is what a shell runs."""
    code = b"\x48\x89\xe3"  # mov rbx, rsp
    for number in (_SETGROUPS, _SETRESGID, _SETRESUID):
        code += b"\x31\xff\x31\xf6\x31\xd2" + _number(number) + _SYSCALL
        code += b"\x48\x85\xc0\x0f\x85" + b"\0\0\0\0"  # test rax, rax; jnz failed
    code += b"\x48\x8b\x0b"  # mov rcx, [rbx]: how many words
    code += b"\x48\x8d\x54\xcb\x10"  # lea rdx, [rbx + rcx * 8 + 16]: the variables
    code += b"\x48\xc7\x43\x08" + b"\0\0\0\0"  # mov qword [rbx + 8], script
    script_at = len(code) - 4
    code += b"\x48\xc7\x03" + b"\0\0\0\0"  # mov qword [rbx], shell: before the words
    shell_at = len(code) - 4
    code += b"\x48\x89\xde"  # mov rsi, rbx
    code += b"\xbf" + b"\0\0\0\0"  # mov edi, shell
    path_at = len(code) - 4
    code += _number(_EXECVE) + _SYSCALL
    failed = len(code)
    code += b"\xbf\x01\0\0\0" + _number(_EXIT) + _SYSCALL
    shell = BASE + HEADER_BYTES + len(code)
    script = shell + len(_SHELL)
    code = _put(code, script_at, script)
    code = _put(_put(code, shell_at, shell), path_at, shell)
    return _leading(code, failed) + _SHELL + _SCRIPT.encode() + b"\0"


_SHELL = b"/bin/sh\0"


def _number(number: int) -> bytes:
    return b"\xb8" + struct.pack("<I", number)  # mov eax


def _put(code: bytes, at: int, value: int) -> bytes:
    return code[:at] + struct.pack("<I", value) + code[at + 4 :]


def _leading(code: bytes, failed: int) -> bytes:
    """Fill in the open jumps to the failure branch."""
    end = 0
    while (at := code.find(b"\x0f\x85\0\0\0\0", end)) >= 0:
        end = at + 6
        code = code[: at + 2] + struct.pack("<i", failed - end) + code[end:]
    return code
