"""Template recipes as E2B's SDKs send them, and which of them can be built here."""

import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from pydantic import ConfigDict, Field

from sandyard.e2b_api.control import Body, NoEffect
from sandyard.e2b_api.envd.paths import HOME
from sandyard.e2b_api.errors import BuildRefusedError, InvalidRequestError
from sandyard.runtime.images.model import Credentials

Kind = Literal["COPY", "ENV", "RUN", "WORKDIR", "USER"]
_MOST_STEPS = 500
_USER = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?)?")
"""A name or a number, with a group or without, or none."""
_BASE_IMAGE = "e2bdev/base"
_IMAGES = {_BASE_IMAGE: "base", "e2bdev/code-interpreter": "code-interpreter-v1"}
_KEPT = (HOME, "/workspace")


@dataclass(frozen=True, slots=True)
class Step:
    kind: Kind
    arguments: Sequence[str]
    files_hash: str | None = None

    @property
    def description(self) -> str:
        return f"{self.kind} {' '.join(self.arguments)}".rstrip()


@dataclass(frozen=True, slots=True)
class Recipe:
    """`template` is the name of the one to start from; without it, `image` is, which its registry
    gives for these credentials."""

    template: str | None
    image: str
    credentials: Credentials | None
    steps: Sequence[Step]
    start_command: str | None
    ready_command: str | None


class StepBody(Body):
    type: str
    args: list[str] | None = None
    files_hash: str | None = None
    force: NoEffect = None


class RegistryBody(Body):
    """Those of AWS and Google have other fields."""

    model_config = ConfigDict(extra="ignore")

    username: str | None = None
    password: str | None = None


class RecipeBody(Body):
    from_image: str | None = None
    from_template: str | None = None
    from_image_registry: RegistryBody | None = None
    steps: list[StepBody] | None = Field(default=None, max_length=_MOST_STEPS)
    start_cmd: str | None = None
    ready_cmd: str | None = None
    dockerfile: str | None = Field(default=None, max_length=1 << 16)
    """In place of an image and steps; it is not of E2B's API."""
    context: str | None = None
    """The hash of the uploaded files from which it copies."""
    force: NoEffect = None


def recipe_of(body: RecipeBody) -> Recipe:
    """Raises InvalidRequestError, BuildRefusedError."""
    return Recipe(
        credentials=_credentials(body.from_image_registry),
        template=body.from_template or None,
        image=body.from_image or _BASE_IMAGE,
        steps=[_step(each) for each in body.steps or ()],
        start_command=body.start_cmd or None,
        ready_command=body.ready_cmd or None,
    )


def _credentials(registry: RegistryBody | None) -> Credentials | None:
    if registry is None:
        return None
    if not registry.username or not registry.password:
        raise BuildRefusedError("A registry needs a username and a password here.")
    return Credentials(registry.username, registry.password)


def builtin_of(image: str) -> str | None:
    """The name of the official template that is this image of E2B."""
    return _IMAGES.get(image.removesuffix(":latest"))


def environment_names(image: str) -> Sequence[str]:
    """How the environment of an image may be named: `debian-12` or `debian12` for `debian:12`."""
    name = image.lower().removesuffix(":latest").replace("/", "-")
    return name.replace(":", "-"), name.replace(":", "")


def _step(sent: StepBody) -> Step:
    if sent.type not in get_args(Kind):
        raise BuildRefusedError(f"This server does not support the step {sent.type[:32]!r}.")
    step = Step(cast("Kind", sent.type), sent.args or [], sent.files_hash or None)
    _check(step)
    return step


def _check(step: Step) -> None:
    least = {"COPY": 2, "ENV": 2, "RUN": 1, "WORKDIR": 1, "USER": 1}[step.kind]
    if len(step.arguments) < least or (step.kind == "COPY" and step.files_hash is None):
        raise InvalidRequestError(f"A step {step.kind} needs more arguments.")
    user = {"RUN": 1, "COPY": 2, "USER": 0}.get(step.kind)
    named = step.arguments[user] if user is not None and user < len(step.arguments) else ""
    if not _USER.fullmatch(named):
        raise BuildRefusedError(f"{named[:32]!r} can't be the name of a user.")


def require_kept(path: str) -> None:
    """Raises BuildRefusedError for a path outside the folders that are writable in a sandbox
    without root."""
    whole = posixpath.normpath(path)
    if not any(f"{whole}/".startswith(f"{each}/") for each in _KEPT):
        raise BuildRefusedError(
            f"'{whole}' is outside {HOME}: without root in sandboxes, only that folder is kept."
        )


def variables_of(step: Step) -> Mapping[str, str]:
    words = step.arguments
    return dict(zip(words[::2], words[1::2], strict=False))


def shown_script(values: Iterable[str]) -> str:
    """A script that prints the values as the shell expands them, each followed by NUL."""
    quoted = (re.sub(r'([\\"`])', r"\\\1", value) for value in values)
    return "printf '%s\\0' " + " ".join(f'"{value}"' for value in quoted)


def copy_script(
    source: str, target: str, mode: str, *, unpacked: str, owner: str | None = None
) -> str:
    """A script that copies the files matching `source` from the unpacked folder to the target: the
    content of a single folder, a single file under the target's name unless that is a folder, or
    each of several into it. Root gives them, and the folders that it creates, to `owner`, a user
    with a group, or with the own one."""
    into_folder = "1" if target.endswith("/") else ""
    owner = f"{owner}:" if owner and ":" not in owner else owner
    given = f'chown -h {owner} "$1"' if owner else ":"
    return f"""
set -e; shopt -s nullglob dotglob globstar
folder() {{ [ -d "$1" ] || {{ folder "$(dirname "$1")"; mkdir "$1"; {given}; }}; }}
cd {shlex.quote(unpacked)}
{f"chown -hR {owner} ." if owner else ":"}
pattern={shlex.quote(posixpath.normpath(source))}; target={shlex.quote(target.rstrip("/") or "/")}
IFS=; found=($pattern); unset IFS
[ ${{#found[@]}} -gt 0 ] || {{ echo "no file matches $pattern" >&2; exit 1; }}
if [ ${{#found[@]}} = 1 ] && [ -d "${{found[0]}}" ] && [ ! -L "${{found[0]}}" ]; then
  folder "$target"; cp -a "${{found[0]}}/." "$target/"
elif [ "$pattern" = "${{found[*]}}" ] && [ ! -d "$target" ] && [ -z "{into_folder}" ]; then
  folder "$(dirname "$target")"; cp -a "${{found[0]}}" "$target"
else
  folder "$target"; cp -a "${{found[@]}}" "$target/"
fi
{f'chmod -R {shlex.quote(mode)} "$target"' if mode else ":"}
"""
