"""Secrets that never enter: programs of all kinds use them at their host, and none learns them."""

import asyncio
import importlib.util
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import h11
import typing_extensions

from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Files, IsolationMode, Program, RunId
from sandyard.runtime.secrets_model import NO_SECRETS
from tests.integration.runtime.egress.test_networks import Machine
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, end_all, new_run_id
from tests.support.servers.certificates import Certificate, make_certificate
from tests.support.servers.injected import HOST, PLACEHOLDER, VALUE, bound, secrets_of
from tests.support.servers.own_names import OwnNames, with_own_names

_LIMITS = replace(LIMITS, memory_bytes=1024 * MEGABYTE, processes=64)
_OTHER = "other.test"
_PACKAGES = (
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "attr", "frozenlist", "idna", "multidict"),
    *("propcache", "yarl", "requests", "urllib3", "charset_normalizer", "certifi", "httpx"),
    *("httpcore", "h11", "anyio", "sniffio"),
)
_BEARER = f"Authorization: Bearer {PLACEHOLDER}"
_FORMS = (VALUE, quote(VALUE, safe=""), b64encode(f"user:{VALUE}".encode()).decode())
_NO_PROXY = "unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY NODE_USE_ENV_PROXY"


def libraries() -> Iterator[tuple[str, bytes]]:
    """HTTP clients as files of a machine, by path."""
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        folder = Path(found.origin).parent
        for file in folder.rglob("*"):
            if file.suffix in (".py", ".pem"):
                yield f"lib/{package}/{file.relative_to(folder)}", file.read_bytes()
    yield "lib/typing_extensions.py", Path(typing_extensions.__file__).read_bytes()


@dataclass(slots=True)
class Api:
    """A host by TLS for two names, which knows its key, and answers with what it was sent but not
    the key itself; at `/echo` with that too."""

    port: int = 0
    seen: list[str] = field(default_factory=list)
    """All that it was sent, in letters."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, h11.RemoteProtocolError):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        request: h11.Request | None = None
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                status, headers, body = self._answer(request)
                headers.append(("Content-Length", str(len(body))))
                writer.write(http.send(h11.Response(status_code=status, headers=headers)) or b"")
                writer.write(http.send(h11.Data(data=body)) or b"")
                writer.write(http.send(h11.EndOfMessage()) or b"")
                await writer.drain()
                if http.our_state is not h11.DONE:
                    break
                http.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed):
                break
        writer.close()

    def _answer(self, request: h11.Request) -> tuple[int, list[tuple[str, str]], bytes]:
        target = request.target.decode("latin-1")
        lines = [f"{name.decode()}: {text.decode('latin-1')}" for name, text in request.headers]
        sent = "\n".join([target, *lines])
        self.seen.append(sent)
        if target.startswith("/redirect"):
            return 302, [("Location", f"https://{_OTHER}:{self.port}/")], b""
        if target.startswith("/echo"):
            return 200, [], sent.encode()
        return 200, [], b"welcome" if any(each in sent for each in _FORMS) else b"who are you?"


@dataclass(slots=True)
class Inside(Machine):
    runtime: LocalRuntime
    run_id: RunId
    api: Api
    certificate: Certificate

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.api.port}"


@asynccontextmanager
async def machine(
    folder: Path, names: OwnNames, *, isolation: IsolationMode = "bubblewrap"
) -> AsyncIterator[Inside]:
    names.set({HOST: "127.0.0.1", _OTHER: "127.0.0.1"})
    certificate = make_certificate(folder, f"DNS:{HOST}", f"DNS:{_OTHER}")
    api = Api()
    async with AsyncExitStack() as stack:
        serving = asyncio.start_server(api.serve, "127.0.0.1", 0, ssl=certificate.serving())
        server = await stack.enter_async_context(await serving)
        api.port = server.sockets[0].getsockname()[1]
        options = LocalOptions(
            egress_networks=("127.0.0.0/8",), isolation=isolation, ca_files=(certificate.file,)
        )
        runtime = LocalRuntime(folder / "runtime", options)
        stack.push_async_callback(end_all, runtime)
        secrets = secrets_of(folder, bound(api.port, query=("key",)))
        program = Program(
            Files({"Procfile": b"web: exec python3 -m http.server $PORT\n", **dict(libraries())}),
            environment={"API_KEY": PLACEHOLDER},
            network="internet",
            secrets=replace(secrets, trusted=""),
        )
        run_id = new_run_id()
        await runtime.start(run_id, program, _LIMITS)
        yield Inside(runtime, run_id, api, certificate)


def _python(code: str) -> str:
    return f"PYTHONPATH=lib python3 -c '{code}'"


def clients(url: str) -> dict[str, str]:
    headers = f'{{"Authorization": "Bearer {PLACEHOLDER}"}}'
    aiohttp = f"""
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get("{url}/", headers={headers}) as answer:
            print(await answer.text())
asyncio.run(main())
"""
    fetch = f"fetch(process.argv[1], {{headers: {headers}}}).then(r => r.text()).then(console.log)"
    return {
        "curl": f"curl -sS -H '{_BEARER}' {url}/",
        "curl with basic": f"curl -sS -u user:{PLACEHOLDER} {url}/",
        "curl with query": f"curl -sS '{url}/?key={PLACEHOLDER}'",
        "requests": _python(
            f'import requests as r; print(r.get("{url}/", headers={headers}).text)'
        ),
        "httpx": _python(f'import httpx; print(httpx.get("{url}/", headers={headers}).text)'),
        "aiohttp": _python(aiohttp),
        "urllib": _python(
            f'import urllib.request as u; r = u.Request("{url}/", headers={headers});'
            "print(u.urlopen(r).read().decode())"
        ),
        "fetch": f"node -e '{fetch}' {url}/",
    }


async def test_clients_of_all_kinds_use_a_secret(tmp_path: Path) -> None:
    async def scenario(names: OwnNames) -> None:
        async with machine(tmp_path, names) as inside:
            for way in ("true", _NO_PROXY):
                for name, line in clients(inside.url).items():
                    said = await inside.run(f"{way}; {line}")
                    assert said == "welcome", f"{name}: {said}"
            await inside.runtime.set_secrets(inside.run_id, NO_SECRETS)
            said = await inside.run(f"curl -sSk -H '{_BEARER}' {inside.url}/")
            assert said == "who are you?"

    await with_own_names(tmp_path, scenario)
