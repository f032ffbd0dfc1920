"""Programs that know of no proxy reach servers by their names, and what the policy allows alone."""

import asyncio
import importlib.util
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
import sqlalchemy as sa
import typing_extensions

from sandyard.runtime.egress.relay import Relay
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Files, IsolationMode, Program
from sandyard.runtime.network_model import OTHER_HOST, EgressRules, Network
from tests.integration.runtime.egress.test_networks import Machine
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, end_all, new_run_id
from tests.support.servers.certificates import Certificate, make_certificate
from tests.support.servers.own_names import OwnNames, with_own_names

_LIMITS = replace(LIMITS, memory_bytes=1024 * MEGABYTE, processes=64)
_NAMES = ("web.test", "other.test", "plain.test", "redis.test", "database.test", "grpc.test")
_WAITS = {"Procfile": b"web: exec python3 -m http.server $PORT\n"}
_NO_PROXY = (
    "unset http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY NODE_USE_ENV_PROXY"
)
_PACKAGES = (
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "asyncpg", "attr", "frozenlist", "idna"),
    *("multidict", "propcache", "yarl", "h2", "hpack", "hyperframe"),
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    return make_certificate(folder, *(f"DNS:{name}" for name in _NAMES))


def libraries() -> Iterator[tuple[str, bytes]]:
    """Client libraries as files of a machine, by path."""
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        for file in folder.rglob("*"):
            if file.suffix in (".py", ".so"):
                yield f"lib/{package}/{file.relative_to(folder)}", file.read_bytes()
    yield "lib/typing_extensions.py", Path(typing_extensions.__file__).read_bytes()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Servers:
    """Of the test's own, with their ports."""

    def __init__(self, certificate: Certificate, postgres_url: str) -> None:
        self._certificate = certificate
        self._postgres = sa.make_url(postgres_url)
        self.ports: dict[str, int] = {}
        self.connections = 0

    @asynccontextmanager
    async def all(self) -> AsyncIterator["Servers"]:
        tls = self._certificate.serving()
        http2 = self._certificate.serving()
        http2.set_alpn_protocols(["h2"])
        serving: dict[str, tuple[Serve, ssl.SSLContext | None]] = {
            "web": (_web, tls),
            "grpc": (_http2, http2),
            "plain": (_web, None),
            "redis": (_redis, None),
            "database": (self._database, None),
        }
        async with AsyncExitStack() as stack:
            for name, (serve, context) in serving.items():
                counted = self._counted(serve)
                server = await asyncio.start_server(counted, "127.0.0.1", 0, ssl=context)
                await stack.enter_async_context(server)
                self.ports[name] = server.sockets[0].getsockname()[1]
            yield self

    @property
    def database_url(self) -> str:
        url = self._postgres.set(host="database.test", port=self.ports["database"], query={})
        return url.set(drivername="postgresql").render_as_string(hide_password=False)

    async def _database(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """PostgreSQL, which listens at a path here."""
        folder = self._postgres.query["host"]
        far = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        relay = Relay((reader, writer), far, 60, lambda _: None, lambda _: None)
        await relay.tunnel(reader.read(1024))
        far[1].close()

    def _counted(self, serve: Serve) -> Serve:
        async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                await serve(reader, writer)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                pass  # the client has gone
            finally:
                writer.close()

        return counted


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        [host] = re.findall(rb"(?i)\r\nhost: ([^:\r]+)", head)
        body = b"hello from " + host
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def _redis(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        count = int((await reader.readline())[1:])
        words = []
        for _ in range(count):
            length = int((await reader.readline())[1:])
            words.append((await reader.readexactly(length + 2))[:-2])
        writer.write(b"$%d\r\n%s\r\n" % (len(words[-1]), words[-1]))


async def _http2(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each call as a gRPC server does, with trailers."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    while data := await reader.read(65536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.StreamEnded):
                head = [(":status", "200"), ("content-type", "application/grpc")]
                connection.send_headers(event.stream_id, head)
                connection.send_data(event.stream_id, b"\0\0\0\0\5hello")
                connection.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)
        writer.write(connection.data_to_send())


_REDIS = """
import socket
with socket.create_connection(("redis.test", {port}), 10) as made:
    made.sendall(b"*2\\r\\n$4\\r\\nECHO\\r\\n$5\\r\\nhello\\r\\n")
    print(made.recv(100))
"""
_AIOHTTP = """
import asyncio, aiohttp, ssl
async def main():
    trust = ssl.create_default_context(cafile="ca.pem")
    async with aiohttp.ClientSession() as session:
        for url in ("https://web.test:{web}/", "http://plain.test:{plain}/"):
            async with session.get(url, ssl=trust) as response:
                print(await response.text())
asyncio.run(main())
"""
_ASYNCPG = """
import asyncio, asyncpg
async def main():
    made = await asyncpg.connect("{url}")
    print(await made.fetchval("select 40 + 2"))
asyncio.run(main())
"""
_GRPC = """
import socket, ssl, h2.connection, h2.events
name = "grpc.test"
trust = ssl.create_default_context(cafile="ca.pem")
trust.set_alpn_protocols(["h2"])
made = trust.wrap_socket(socket.create_connection((name, {port}), 10), server_hostname=name)
call = h2.connection.H2Connection()
call.initiate_connection()
head = dict(method="POST", scheme="https", path="/a.B/C", authority=name)
head = [(":" + each, value) for each, value in head.items()]
head += [("content-type", "application/grpc"), ("te", "trailers")]
call.send_headers(1, head, end_stream=True)
made.sendall(call.data_to_send())
ended = False
while not ended:
    for event in call.receive_data(made.recv(65536)):
        if isinstance(event, h2.events.DataReceived): print(event.data[5:])
        if isinstance(event, h2.events.TrailersReceived): print(event.headers)
        ended |= isinstance(event, h2.events.StreamEnded)
    made.sendall(call.data_to_send())
"""
_PING = """
import socket
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
made.settimeout(5)
made.connect(("web.test", 0))
made.send(bytes((8, 0, 0, 0, 0, 1, 0, 1)) + b"hello")
made.recv(100)
"""
_UDP = """
import socket
made = socket.socket(type=socket.SOCK_DGRAM)
made.settimeout(5)
made.connect(("web.test", 443))
made.send(b"hello")
made.recv(100)
"""
_FETCH = (
    "Promise.all(process.argv.slice(1).map(u => fetch(u).then(r => r.text()))).then(console.log)"
)


def programs(servers: Servers) -> dict[str, tuple[str, str]]:
    """A command line for each kind of program, and the end of what it says."""
    ports, database = servers.ports, servers.database_url
    web, plain = f"https://web.test:{ports['web']}/", f"http://plain.test:{ports['plain']}/"
    fetched = "[ 'hello from web.test', 'hello from plain.test' ]"
    http2 = f"-o /dev/null -w '%{{http_version}}' https://grpc.test:{ports['grpc']}/"
    both = "hello from web.test\nhello from plain.test"
    unreachable = "ConnectionRefusedError: [Errno 111] Connection refused"
    return {
        "curl": (f"curl -sS --cacert ca.pem {web} && echo && curl -sS {plain}", both),
        "curl with HTTP/2": (f"curl -sS --cacert ca.pem {http2}", "2"),
        "fetch": (f"NODE_EXTRA_CA_CERTS=ca.pem node -e '{_FETCH}' {web} {plain}", fetched),
        "aiohttp": (_python(_AIOHTTP.format(**ports)), both),
        "Redis": (_python(_REDIS.format(port=ports["redis"])), r"b'$5\r\nhello\r\n'"),
        "asyncpg": (_python(_ASYNCPG.format(url=database)), "42"),
        "libpq": (f"psql '{database}' -Atc 'select 40 + 2'", "42"),
        "gRPC": (
            _python(_GRPC.format(port=ports["grpc"])),
            "b'hello'\n[(b'grpc-status', b'0')]",
        ),
        "ping": (f"{_python(_PING)} | tail -1", unreachable),
        "UDP": (f"{_python(_UDP)} | tail -1", unreachable),
    }


def _python(code: str) -> str:
    return f"PYTHONPATH=lib python3 -c '{code}' 2>&1"


@asynccontextmanager
async def machine(
    folder: Path,
    certificate: Certificate,
    network: Network,
    *,
    isolation: IsolationMode = "bubblewrap",
    hosts: tuple[str, ...] = (),
    allowed: str = "127.0.0.0/8",
) -> AsyncIterator[Machine]:
    """Without the settings of the proxy."""
    options = LocalOptions(allowed_hosts=hosts, egress_networks=(allowed,), isolation=isolation)
    runtime = LocalRuntime(folder / "runtime", options)
    files = Files({"ca.pem": certificate.file.read_bytes(), **dict(libraries()), **_WAITS})
    run_id = new_run_id()
    try:
        await runtime.start(run_id, Program(files, network=network), _LIMITS)
        yield WithoutProxy(runtime, run_id)
    finally:
        await end_all(runtime)


class WithoutProxy(Machine):
    async def run(self, line: str) -> str:
        return await super().run(f"{_NO_PROXY}; {line}")


async def test_programs_of_all_kinds_reach_their_servers(
    tmp_path: Path, certificate: Certificate, postgres_url: str
) -> None:
    """Or say at once that they do not."""

    async def scenario(names: OwnNames) -> None:
        names.set(dict.fromkeys(_NAMES, "127.0.0.1"))
        async with (
            Servers(certificate, postgres_url).all() as servers,
            machine(tmp_path, certificate, "internet") as inside,
        ):
            for name, (line, end) in programs(servers).items():
                said = await inside.run(line)
                assert said.endswith(end), f"{name}: {said}"
            assert (await inside.report(refused=0)).refused == 0
            wrong = await inside.run("curl -sS http://does-not-exist.test/")
            assert "Could not resolve host" in wrong

    await with_own_names(tmp_path, scenario)


async def test_what_is_not_listed_is_refused_and_told(
    tmp_path: Path, certificate: Certificate, postgres_url: str
) -> None:
    """Also a neighbour behind the same address, whatever a program calls it."""

    async def scenario(names: OwnNames) -> None:
        names.set(dict.fromkeys(_NAMES, "127.0.0.1"))
        async with AsyncExitStack() as stack:
            servers = await stack.enter_async_context(Servers(certificate, postgres_url).all())
            web, plain, redis = (servers.ports[name] for name in ("web", "plain", "redis"))
            hosts = (f"web.test:{web}", f"plain.test:{plain}")
            opened = machine(tmp_path, certificate, "packages", hosts=hosts)
            inside = await stack.enter_async_context(opened)
            curl = "curl -sS --cacert ca.pem"
            for url in (f"https://web.test:{web}/", f"http://plain.test:{plain}/"):
                assert (await inside.run(f"{curl} {url}")).startswith("hello from"), url
            found = await inside.run("getent hosts web.test plain.test other.test redis.test")
            addresses = {line.split()[0] for line in found.splitlines()}
            assert len(addresses) == 4, "an address for each, though they share one outside"
            assert all(each.startswith(("198.18.", "198.19.")) for each in addresses)
            served = servers.connections
            to_web, to_plain = f"web.test:{web}", f"plain.test:{plain}"
            as_other = f"--connect-to other.test:{web}:{to_web} https://other.test:{web}/"
            refused = (
                f"https://other.test:{web}/",
                as_other,
                f"--proxy http://127.0.0.1:3128 {as_other}",
                f"-k https://$(getent hosts web.test | cut -d' ' -f1):{web}/",
            )
            for words in refused:
                assert "access denied" in await inside.run(f"{curl} {words}"), words
            named = f"{curl} -H 'Host: other.test' http://{to_plain}/"
            assert "403" in await inside.run(f"{named} -w '%{{http_code}}'")
            said = await inside.run(_python(_REDIS.format(port=redis)))
            assert "ConnectionResetError" in said
            assert servers.connections - served <= 4, "no connection of those refused by name"
            report = await inside.report(refused=6)
            told = {(each.host, each.port, each.reason) for each in report.refusals}
            assert told == {
                ("other.test", web, "not in the package allow-list"),
                ("redis.test", redis, "not in the package allow-list"),
                ("web.test", web, OTHER_HOST),
                ("plain.test", plain, OTHER_HOST),
            }

    await with_own_names(tmp_path, scenario)


_HOLD = """
import socket
made = socket.create_connection(("redis.test", {port}), 10)
made.sendall(b"*1\\r\\n$5\\r\\nfirst\\r\\n")
assert made.recv(100)
print("open", flush=True)
made.settimeout(30)
try:
    print("closed", made.recv(100))
except ConnectionResetError:
    print("closed")
"""


async def test_a_name_that_changes_and_a_network_that_changes(
    tmp_path: Path, certificate: Certificate, postgres_url: str
) -> None:
    async def scenario(names: OwnNames) -> None:
        names.set({"redis.test": "127.0.0.1", "rebind.test": "127.0.0.1"})
        async with (
            Servers(certificate, postgres_url).all() as servers,
            machine(tmp_path, certificate, "internet", allowed="127.0.0.1/32") as inside,
        ):
            port = servers.ports["redis"]
            looked_up = await inside.run("getent hosts rebind.test")
            names.set({"redis.test": "127.0.0.1", "rebind.test": "127.0.0.2"})
            address = looked_up.split()[0]
            said = await inside.run(f"curl -sS http://{address}:{port}/")
            assert said == "blocked: rebind.test (its address is private)"
            for host in ("10.0.0.1", "169.254.169.254", "192.168.0.1"):
                said = await inside.run(f"curl -sS http://{host}/")
                assert said == f"blocked: {host} (its address is private)"

            before = servers.connections
            hold = asyncio.ensure_future(inside.run(f"python3 -c '{_HOLD.format(port=port)}'"))
            async with asyncio.timeout(20):
                while servers.connections == before:
                    await asyncio.sleep(0.05)
            await inside.runtime.set_network(inside.run_id, "none")
            async with asyncio.timeout(10):
                assert (await hold).startswith("open\nclosed")
            redis = f"python3 -c '{_REDIS.format(port=port)}'"
            assert "ConnectionResetError" in await inside.run(redis)
            await inside.runtime.set_network(inside.run_id, "internet")
            assert "hello" in await inside.run(redis)
            rules = EgressRules(("127.0.0.1",), ("0.0.0.0/0",))
            await inside.runtime.set_network(inside.run_id, "internet", rules)
            assert "hello" in await inside.run(redis)
            rules = EgressRules(("other.test",), ("0.0.0.0/0",))
            await inside.runtime.set_network(inside.run_id, "internet", rules)
            assert "ConnectionResetError" in await inside.run(redis)
            report = await inside.report(refused=6)
            told = {(each.host, each.reason) for each in report.refusals}
            assert ("redis.test", "denied by a rule of this sandbox") in told

    await with_own_names(tmp_path, scenario)


async def test_a_machine_with_its_own_kernel_has_the_same_network(
    tmp_path: Path, certificate: Certificate, postgres_url: str
) -> None:
    async def scenario(names: OwnNames) -> None:
        names.set(dict.fromkeys(_NAMES, "127.0.0.1"))
        async with (
            Servers(certificate, postgres_url).all() as servers,
            machine(tmp_path, certificate, "internet", isolation="gvisor") as inside,
        ):
            wanted = programs(servers)
            for name in ("curl", "fetch", "Redis", "libpq", "UDP"):
                line, end = wanted[name]
                said = await inside.run(line)
                assert said.endswith(end), f"{name}: {said}"
            await inside.runtime.set_network(inside.run_id, "none")
            said = await inside.run(f"curl -sS http://plain.test:{servers.ports['plain']}/")
            assert said == "blocked: plain.test (this sandbox has no network)"

    await with_own_names(tmp_path, scenario)
