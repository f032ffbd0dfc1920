"""The welcome text: all addresses, commands to paste, and for each part what works."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from sandyard.bootstrap.registry import selected_parts
from sandyard.entrypoints.server.data_dir import secret_file, secret_tokens
from sandyard.entrypoints.server.listeners import is_loopback
from sandyard.settings import Settings, tokens
from sandyard.wiring.part import Part
from sandyard.wiring.spec import WelcomeContext


def welcome(
    settings: Settings,
    parts: Sequence[Part],
    *,
    troubles: Mapping[str, str],
    url: str,
    host: str,
    data_dir: Path,
) -> str:
    """Lines that never show a token: they read it from its file or variable when pasted. `parts`
    are those of this process, `troubles` all that are not ready, and why."""
    context = WelcomeContext(settings, data_dir, url, parts, partial(_bearer, settings, data_dir))
    lines = [
        "",
        *(line for spec in selected_parts(settings) for line in spec.examples(context)),
        "See the metrics:",
        f"  {_metrics(settings, url, host)}",
        "",
        *_works(context, troubles),
        "",
        f"Sandyard is not ready yet: {url}/readyz says why." if troubles else ready(url),
        "",
    ]
    return "\n".join(lines)


def ready(url: str) -> str:
    return f"Sandyard is ready: the console at {url}/, the API at {url}/docs"


def local_url(host: str, port: int, *, scheme: str = "http") -> str:
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _metrics(settings: Settings, server_url: str, host: str) -> str:
    """A command that works as shown, or the settings that it needs first."""
    url = f"{server_url}/metrics"
    if in_force := tokens(settings.server.metrics_token):
        return f'curl -H "Authorization: Bearer {_variable("METRICS_TOKEN", in_force)}" {url}'
    if is_loopback(host):
        return f"curl {url}"
    if settings.server.metrics_port is not None:
        return f"curl {local_url(host, settings.server.metrics_port)}/metrics"
    return "set METRICS_TOKEN or METRICS_PORT first: beyond loopback /metrics is closed without"


def _works(context: WelcomeContext, troubles: Mapping[str, str]) -> Iterator[str]:
    for spec in selected_parts(context.settings):
        is_embedded = spec.is_embedded(context.settings)
        place = f"SQLite in {context.data_dir}" if is_embedded else spec.engine_of(context.settings)
        missing = spec.missing(context.settings)
        state = "works in part" if missing else "works"
        if spec.name in troubles:
            state, missing = "not ready", [troubles[spec.name]]
        yield " ".join([f"  {spec.name:<10}{state}, on {place}.", *missing])
    for spec in selected_parts(context.settings):
        for label, text in spec.notes(context).items():
            yield f"  {label:<10}{text}"


def _bearer(settings: Settings, data_dir: Path, setting: str) -> str:
    """From the file only if its token is valid: the variable takes precedence."""
    path = secret_file(data_dir, setting)
    in_force = secret_tokens(settings, setting)
    if path.exists() and path.read_text().strip() in in_force:
        token = f"$(cat {shlex.quote(str(path))})"
    else:
        token = _variable(setting.upper(), in_force)
    return f'-H "Authorization: Bearer {token}"'


def _variable(name: str, in_force: Sequence[str]) -> str:
    """The shell expression for the first of these tokens."""
    return f"${name}" if len(in_force) == 1 else f"${{{name}%%,*}}"
