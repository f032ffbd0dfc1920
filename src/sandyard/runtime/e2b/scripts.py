"""The shell scripts that are run inside a sandbox, each begun in its user's home folder."""

import shlex

WORKSPACE = "workspace"
STATE = ".sandyard"
"""Beside the workspace: the program's log, its process and its exit code."""

NO_FILE = 8
ENDED = 8
NOT_LISTENING = 9
UNSAFE = 9
TOO_SLOW = 124
"""What `timeout` ends with when the time is over."""

_LOG_BYTES = 1 << 20
_PROCFILE_BYTES = 65536

APPLY = f"""
mkdir -p {WORKSPACE}; cd {WORKSPACE}; here=$(realpath .); incoming=../{STATE}/incoming
refuse() {{ printf %s "$1" >&2; exit {UNSAFE}; }}
folder() {{ dirname -- "$1"; }}
for list in deleted written; do
  while IFS= read -r -d '' path; do
    case "$(realpath -m -- "$(folder "$path")")/" in "$here"/*) ;; *) refuse "$path";; esac
  done <$incoming/$list
done
while IFS= read -r -d '' path; do
  [ -d "$path" ] && [ ! -L "$path" ] || rm -f -- "$path"
  rmdir -p -- "$(folder "$path")" 2>/dev/null
done <$incoming/deleted
number=0
while IFS= read -r -d '' path; do
  mkdir -p -- "$(folder "$path")" && mv -fT -- $incoming/$number "$path" || refuse "$path"
  number=$((number + 1))
done <$incoming/written
rm -rf $incoming
"""
"""Deletes and writes what was uploaded under numbers, each file at once."""

PROCFILE = f"""
cd {WORKSPACE} && [ -f Procfile ] && [ ! -L Procfile ] || exit {NO_FILE}
head -c {_PROCFILE_BYTES} Procfile
"""
CLEAR = f"mkdir -p {STATE} {WORKSPACE} && rm -f {STATE}/exit {STATE}/pid {STATE}/log"
"""Removes what an earlier program left in a snapshot."""
USAGE = f"du -sb {WORKSPACE} | cut -f1; ls -d /proc/[0-9]* | wc -l"
"""The bytes of the workspace, and the number of processes."""


def clone(git: list[str], *, timeout_sec: float) -> str:
    return f"mkdir -p {WORKSPACE} && cd {WORKSPACE} && timeout {timeout_sec:g} {shlex.join(git)}"


def launch(command: str) -> str:
    """Starts the program and stays with it, to note its exit code."""
    return f"""
cd {WORKSPACE}
setsid /bin/sh -c {shlex.quote(command)} >../{STATE}/log 2>&1 </dev/null &
echo $! >../{STATE}/pid
wait $!; echo $? >../{STATE}/exit.new; mv ../{STATE}/exit.new ../{STATE}/exit
"""


def until_listening(*, timeout_sec: float) -> str:
    return f"""
for look in $(seq {max(1, round(timeout_sec * 10))}); do
  [ ! -e {STATE}/exit ] || exit {ENDED}
  ! (exec 3<>/dev/tcp/127.0.0.1/$PORT) 2>/dev/null || exit 0
  sleep 0.1
done
exit {NOT_LISTENING}
"""


def end(mark: str) -> str:
    """Ends all processes whose environment has the mark, also those that left their parents."""
    return f"""
left() {{ grep -lszxF -- {shlex.quote(mark)} /proc/[0-9]*/environ | cut -d/ -f3; }}
kill -TERM -- "-$(cat {STATE}/pid)" 2>/dev/null
for look in $(seq 20); do [ -n "$(left)" ] || exit 0; sleep 0.1; done
for look in $(seq 20); do
  pids=$(left); [ -n "$pids" ] || exit 0; kill -KILL $pids 2>/dev/null; sleep 0.05
done
exit 0
"""


def log(begin: int | None) -> str:
    """Tells where it begins, and then the log from there on, or the last of it."""
    last = "$((size > limit ? size - limit : 0))"
    return f"""
size=$(stat -c %s {STATE}/log 2>/dev/null || echo 0); limit={_LOG_BYTES}
begin={last if begin is None else begin}; echo $begin
[ $size = 0 ] || tail -c +$((begin + 1)) {STATE}/log | head -c $limit | base64 -w0
"""
