"""What a person sees when the server is ready: where everything is, with lines to paste."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from sandyard.bootstrap.engines import embedded_parts
from sandyard.bootstrap.platform import OUTBOX
from sandyard.entrypoints.data_dir import secret_file
from sandyard.entrypoints.parts import RunningParts
from sandyard.entrypoints.provider import SIMULATED_SANDBOXES
from sandyard.settings import Settings


def welcome(
    settings: Settings, running: RunningParts, *, host: str, port: int, data_dir: Path
) -> str:
    """Lines that never show a token: they read it from its file or variable when pasted."""
    url = local_url(host, port)
    lines = [
        "",
        f"Sandyard is ready at {url} (API: {url}/docs)",
        *_engines(settings, running, data_dir),
        "",
        *_calls(settings, url, data_dir),
        "See the metrics:",
        f"  curl {url}/metrics",
        "",
    ]
    return "\n".join(lines)


def local_url(host: str, port: int) -> str:
    """The server's URL as somebody on this machine types it."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _engines(settings: Settings, running: RunningParts, data_dir: Path) -> Iterator[str]:
    embedded = embedded_parts(settings)
    for part in running.parts:
        engine = f"SQLite in {data_dir}" if part.name in embedded else part.engine
        yield f"  {part.name:<10}{engine}"
    if "platform" in settings.server.part_names and settings.platform.smtp_url is None:
        yield f"  {'mails':<10}files in {data_dir / OUTBOX}"
    if provider := running.provider:
        where = (
            f"simulated ({SIMULATED_SANDBOXES} sandboxes); faults at {provider.url}/_sim"
            if provider.is_simulated
            else provider.url
        )
        yield f"  {'provider':<10}{where}"


def _calls(settings: Settings, url: str, data_dir: Path) -> Iterator[str]:
    def bearer(name: str) -> str:
        return f'-H "Authorization: Bearer {_for_shell(data_dir, name)}"'

    if "broker" in settings.server.part_names:
        broker = url + settings.broker.api_base_path
        yield "Lease a sandbox, look at the pool:"
        yield f'  curl -X POST {broker}/allocate {bearer("broker_api_token")} -H "X-Track-ID: demo"'
        yield f"  curl {broker}/admin/stats {bearer('broker_admin_token')}"
    if "telemetry" in settings.server.part_names:
        telemetry = f"{url}/telemetry/v1"
        admin = bearer("telemetry_admin_token")
        yield "Make a key for devices, list the devices:"
        yield f"  curl -X POST {telemetry}/api-keys {admin}"
        yield f"  curl {telemetry}/devices {admin}"
    if "platform" in settings.server.part_names:
        sign_up = {"email": "me@example.com", "username": "someone", "password": "change this now"}
        yield "Sign up, then read the mail:"
        yield (
            f"  curl {url}/api/v1/auth/signup -H 'Content-Type: application/json'"
            f" -d {shlex.quote(json.dumps(sign_up))}"
        )


def _for_shell(data_dir: Path, name: str) -> str:
    path = secret_file(data_dir, name)
    return f"$(cat {shlex.quote(str(path))})" if path.exists() else f"${name.upper()}"
