"""What a project is, by its files."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

_NODE = ("package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc")
_OBJECTS = ("scripts", "dependencies", "devDependencies")
_PYTHON = ("requirements.txt", "pyproject.toml")
MANIFESTS = (*_NODE, *_PYTHON)
RESTARTS = (*MANIFESTS, "Procfile")
_UNWATCHED = {"node_modules", ".git", ".venv", ".next", "__pycache__", "dist"}
Purpose = Literal["dev", "build", "run"]
"""The development server, with reloading; the files that the project builds; the application."""


class Application(NamedTuple):
    """What a project is. Lines are for the shell, and find `$PORT` in the environment."""

    kind: str
    install: str | None = None
    start: str | None = None
    """None: its files are served as they are."""


def detect(site: str, purpose: Purpose = "dev") -> Application:
    """In this order: a Procfile; a package.json with a script `dev`, or `start` to run it; Python's
    requirements with a framework that is known; files. Raises ValueError, whose message names the
    manifest that can't be read."""
    web = re.search(r"^web:[ \t]*(\S.*)$", read(site, "Procfile"), re.MULTILINE)
    package, required = _package(site), _required(site)
    scripts = package.get("scripts") or {}
    named = {*(package.get("dependencies") or {}), *(package.get("devDependencies") or {})}
    install = "npm install --no-audit --no-fund --prefer-offline" if package else None
    if purpose == "build" or (purpose == "run" and "build" in scripts):
        install = " && ".join(filter(None, (install, "npm run build")))
    if purpose == "build":
        return Application("static", install)
    if web:
        lines = filter(None, (install, _python(required)))
        return Application("procfile", " && ".join(lines) or None, web.group(1))
    script = "dev" if purpose == "dev" else "start"
    if script in scripts:
        for kind, options in (("next", "-p $PORT -H 127.0.0.1"), ("vite", _VITE)):
            if kind in named and kind in str(scripts[script]):
                return Application(kind, install, f"exec npm run {script} -- {options}")
        kind = "express" if "express" in named else "node"
        return Application(kind, install, f"exec npm run {script}")
    if script == "start" and "vite" in named:
        return Application("vite", install, f"exec vite preview {_VITE}")
    for kind, line, reloading in _PYTHON_SERVERS:
        if kind in required:
            start = line.format(entry=_entry(site, kind)) + (reloading if script == "dev" else "")
            return Application(kind, _python(required), start)
    return Application("static")


_VITE = "--port $PORT --strictPort --host 127.0.0.1"
_STREAMLIT = "--server.port $PORT --server.address 127.0.0.1 --server.headless true"
_PYTHON_SERVERS = (
    ("streamlit", f"exec streamlit run {{entry}}.py {_STREAMLIT}", ""),
    ("fastapi", "exec uvicorn {entry}:app --host 127.0.0.1 --port $PORT", " --reload"),
    ("flask", "exec flask --app {entry} run --host 127.0.0.1 --port $PORT", " --debug"),
)


def _entry(site: str, kind: str) -> str:
    names = ("streamlit_app", "app", "main") if kind == "streamlit" else ("main", "app", "wsgi")
    found = [name for name in names if os.path.exists(os.path.join(site, f"{name}.py"))]
    return found[0] if found else names[1]


def _python(required: dict[str, str]) -> str | None:
    lines = [*required.values(), *(["uvicorn"] if "fastapi" in required else [])]
    chosen = " ".join("'" + line.replace("'", "") + "'" for line in lines)
    pip = "../venv/bin/pip install --disable-pip-version-check"
    return f"python3 -m venv ../venv && {pip} {chosen}" if lines else None


def _package(site: str) -> dict[str, Any]:
    try:
        found = json.loads(read(site, "package.json") or "{}")
    except ValueError as error:
        raise ValueError(f"package.json is not valid JSON: {error}") from None
    objects = [found]
    if isinstance(found, dict):
        objects += [found.get(name) or {} for name in _OBJECTS]
    if all(isinstance(each, dict) for each in objects):
        return dict(found)
    raise ValueError(f"package.json is not a JSON object, or one of its {', '.join(_OBJECTS)}")


def _required(site: str) -> dict[str, str]:
    """The requirements by the names of their packages."""
    lines = read(site, "requirements.txt").splitlines()
    if not lines:
        try:
            project = tomllib.loads(read(site, "pyproject.toml"))["project"]
            lines = [str(line) for line in project["dependencies"]]
        except (KeyError, TypeError):
            lines = []
        except ValueError as error:
            raise ValueError(f"pyproject.toml is not valid TOML: {error}") from None
    wanted = [line.split(" #")[0].strip() for line in lines]
    pairs = [(re.match(r"[A-Za-z0-9._-]+", line), line) for line in wanted]
    return {name.group().lower(): line for name, line in pairs if name and line[:1] not in "#-"}


def read(site: str, name: str) -> str:
    try:
        with open(os.path.join(site, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def digest_of(site: str) -> str:
    """Of the content of all manifests."""
    return hashlib.sha256("\0".join(read(site, name) for name in MANIFESTS).encode()).hexdigest()


def times(folder: str, names: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Of these files in the folder; of all below it, if none are named. A sync may remove them
    meanwhile, and the folder with its last file."""
    with suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                if not names and each.name not in _UNWATCHED:
                    yield from times(each.path)
            elif not names or each.name in names:
                with suppress(OSError):
                    yield each.path, each.stat(follow_symlinks=False).st_mtime_ns
