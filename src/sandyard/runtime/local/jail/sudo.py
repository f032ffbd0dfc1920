"""`sudo` in a sandbox with its own root: a program that becomes root, and a script that parses
its options."""

from collections.abc import Mapping

from sandyard.runtime.local.jail.native_programs import sudo_program

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


def sudo_files() -> Mapping[str, tuple[bytes, int]]:
    """The content and mode of each, by path; none if the processor is not supported."""
    program = sudo_program()
    if program is None:
        return {}
    return {SUDO: (program, 0o4111), _SCRIPT: (_OPTIONS.encode(), 0o444)}
