"""What a machine finds set up inside: the proxy, package indexes, certificates, `python`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sandyard.runtime.local.jail.isolation import PATH

EGRESS_PORT = 3128
"""Port of the egress proxy on the machine's loopback."""
CA_BUNDLE = "/run/sandyard/ca.pem"
ALIASES = "/run/sandyard/bin"
_HOME = "/workspace"
_PROXY = f"http://127.0.0.1:{EGRESS_PORT}"
_NO_PROXY = "localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,sandbox"
"""All names of the machine itself. Not every program knows networks, so the usual address is named
too."""
SYSTEM_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
_BINARIES = ("usr/local/bin", "usr/bin", "bin")
HOST_ROOT = Path("/")
_APT = "/tmp/apt"  # noqa: S108 - inside
_APT_FOLDERS = ("apt.conf.d", "preferences.d", "sources.list.d", "trusted.gpg.d")
_PACKAGES = "/var/lib/dpkg/status"
_NO_PACKAGES = "/run/sandyard/packages"
_CA_VARIABLES = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"),
)
SETTING_FILES = ("/etc/pip.conf", "/etc/npmrc", "/etc/apt/apt.conf", "/etc/apt/sources.list")


@dataclass(frozen=True, slots=True)
class PackageSources:
    """Package sources set by the operator; None is the default one."""

    pip_index_url: str | None = None
    npm_registry: str | None = None
    debian_mirror: str | None = None


def machine_environment(*, has_ca: bool) -> dict[str, str]:
    """The variables of every process of a machine."""
    variables = {
        "PATH": f"{_HOME}/.local/bin:{PATH}:{ALIASES}",
        "npm_config_globalconfig": "/etc/npmrc",
        "NODE_USE_ENV_PROXY": "1",
    }
    for name, value in (("http_proxy", _PROXY), ("https_proxy", _PROXY), ("no_proxy", _NO_PROXY)):
        variables |= {name: value, name.upper(): value}
    if has_ca:
        variables |= dict.fromkeys(_CA_VARIABLES, CA_BUNDLE)
    return variables


def image_environment(variables: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """An image's variables, overridden by ours; PATH has the programs of both."""
    added = [each for each in variables.get("PATH", "").split(":") if each.startswith("/")]
    known = own["PATH"].split(":")
    path = [known[0], *(each for each in added if each not in known), *known[1:]]
    return {**variables, **own, "PATH": ":".join(path)}


def machine_files(
    sources: PackageSources, *, root: Path, has_ca: bool, has_root: bool = False
) -> dict[str, str]:
    """Settings of package managers, by path; users' own settings override them."""
    return {
        "/etc/pip.conf": _pip_settings(sources, has_ca=has_ca),
        "/etc/npmrc": _npm_settings(sources, root, has_ca=has_ca),
        "/etc/apt/apt.conf": _apt_settings(
            _NO_PACKAGES if root == HOST_ROOT and not has_root else _PACKAGES, has_ca=has_ca
        ),
        "/etc/apt/sources.list": _debian_sources(sources, root),
        **({_NO_PACKAGES: ""} if root == HOST_ROOT else {}),
    }


def machine_folders(root: Path) -> list[str]:
    """Empty folders that apt needs."""
    made = [f"/etc/apt/{name}" for name in _APT_FOLDERS] if root == HOST_ROOT else []
    return [*made, f"{_APT}/state/lists/partial", f"{_APT}/cache/archives/partial"]


def aliases(root: Path, *, has_root: bool = False) -> dict[str, str]:
    """The target program of each alias: `python` and `pip` where the system has only python3 and
    pip3, and, where there is only one user, a `sudo` that runs a command unchanged."""
    wanted = {"python": "python3", "pip": "pip3"} | ({} if has_root else {"sudo": "env"})
    found = {name: _program(root, target) for name, target in wanted.items()}
    return {
        name: target
        for name, target in found.items()
        if target is not None and _program(root, name) is None
    }


def ca_bundle(folder: Path, root: Path, added: Sequence[bytes]) -> Path | None:
    """A file with the system's certificates and these; None if none are added."""
    from hashlib import sha256  # here, because supervisors import this module and do not need it

    if not added:
        return None
    system = root / SYSTEM_BUNDLE
    found = system.read_bytes() if system.is_file() else b""
    content = b"\n".join([found, *added])
    bundle = folder / f"{sha256(content).hexdigest()[:16]}.pem"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        draft = folder / f".{bundle.name}.{os.getpid()}"
        draft.write_bytes(content)
        draft.chmod(0o644)
        draft.replace(bundle)
    return bundle


def _pip_settings(sources: PackageSources, *, has_ca: bool) -> str:
    lines = ["[global]", "disable-pip-version-check = true", "no-cache-dir = true"]
    lines += ["break-system-packages = true"]  # packages are installed to ~/.local
    if sources.pip_index_url is not None:
        lines.append(f"index-url = {sources.pip_index_url}")
        index = urlsplit(sources.pip_index_url)
        if index.scheme == "http":  # pip takes packages from such a host only if it is named
            lines.append(f"trusted-host = {index.netloc.rpartition('@')[2]}")
    if has_ca:
        lines.append(f"cert = {CA_BUNDLE}")
    return "\n".join([*lines, ""])


def _npm_settings(sources: PackageSources, root: Path, *, has_ca: bool) -> str:
    """Node.js brings certificates of its own; npm takes the system's, as pip, git and curl do."""
    lines = [f"prefix={_HOME}/.local", "update-notifier=false", "fund=false", "audit=false"]
    if sources.npm_registry is not None:
        lines.append(f"registry={sources.npm_registry}")
    if has_ca or (root / SYSTEM_BUNDLE).is_file():
        lines.append(f"cafile={CA_BUNDLE if has_ca else f'/{SYSTEM_BUNDLE}'}")
    return "\n".join([*lines, ""])


def _apt_settings(packages: str, *, has_ca: bool) -> str:
    """Anyone may search and download packages; only root can install them."""
    settings = {
        "Acquire::http::Proxy": _PROXY,
        "Acquire::https::Proxy": _PROXY,
        "Acquire::GzipIndexes": "true",
        "APT::Sandbox::User": "",
        "Dir::State": f"{_APT}/state",
        "Dir::State::status": packages,
        "Dir::Cache": f"{_APT}/cache",
    }
    if has_ca:
        settings["Acquire::https::CAInfo"] = CA_BUNDLE
    return "".join(f'{name} "{value}";\n' for name, value in settings.items())


def _debian_sources(sources: PackageSources, root: Path) -> str:
    suite = _os_release(root).get("VERSION_CODENAME")
    if suite is None or not (root / _KEYRING).exists():
        return ""
    mirror = sources.debian_mirror or "http://deb.debian.org/debian"
    return f"deb [signed-by=/{_KEYRING}] {mirror} {suite} main\n"


def _os_release(root: Path) -> Mapping[str, str]:
    try:
        lines = (root / "usr/lib/os-release").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip('"') for name, _, value in pairs}


def _program(root: Path, name: str) -> str | None:
    """Its path inside. A link counts wherever it leads: its target is not checked inside."""
    for folder in _BINARIES:
        if os.path.lexists(root / folder / name):
            return f"/{folder}/{name}"
    return None
