"""The client libraries that people use, as PyPI has them, reach their servers directly."""

from pathlib import Path

import pytest

from sandyard.runtime.model import IsolationMode
from tests.integration.runtime.egress.test_direct_connections import Servers, machine
from tests.support.runtime.sessions import pieces
from tests.support.servers.certificates import make_certificate
from tests.support.servers.own_names import OwnNames, with_own_names
from tests.support.services.package_indexes import downloaded_wheels

LIBRARIES = ("psycopg2-binary", "redis==5.2.1", "grpcio")
INSTALL = (
    "/usr/bin/python3 -m pip install -q --no-index --find-links wheels --target clients "
    + " ".join(LIBRARIES)
)
PSYCOPG2 = """
import psycopg2
made = psycopg2.connect("{url}").cursor()
made.execute("select 40 + 2")
print(made.fetchone()[0])
"""
REDIS = """
import redis
made = redis.Redis("redis.test", {redis}, lib_name=None, lib_version=None)
print(made.echo("hello"))
"""
GRPC = """
import grpc
trust = grpc.ssl_channel_credentials(open("ca.pem", "rb").read())
made = grpc.secure_channel("grpc.test:{grpc}", trust)
print(made.unary_unary("/a.B/C")(b"question", timeout=20))
"""
REFUSED = """
import grpc
made = grpc.insecure_channel("10.0.0.1:443")
print(grpc.channel_ready_future(made).result(timeout=1))
"""
PROGRAMS = {
    PSYCOPG2: "42",
    REDIS: "b'hello'",
    GRPC: "b'hello'",
    REFUSED: "grpc.FutureTimeoutError [1]",
}


@pytest.mark.parametrize(
    "isolation", ["bubblewrap", pytest.param("gvisor", marks=pytest.mark.torture)]
)
async def test_client_libraries_reach_their_servers(
    tmp_path: Path, postgres_url: str, isolation: IsolationMode
) -> None:
    names_of_servers = ("redis.test", "database.test", "grpc.test")
    certificate = make_certificate(tmp_path, *(f"DNS:{name}" for name in names_of_servers))

    async def scenario(names: OwnNames) -> None:
        names.set(dict.fromkeys(names_of_servers, "127.0.0.1"))
        async with (
            Servers(certificate, postgres_url).all() as servers,
            machine(tmp_path, certificate, "internet", isolation=isolation) as inside,
        ):
            session = await inside.runtime.session(inside.run_id)
            for name, content in downloaded_wheels(*LIBRARIES).items():
                await session.files.write(f"wheels/{name}", pieces(content))
            assert await inside.run(INSTALL) == ""
            for code, end in PROGRAMS.items():
                program = code.format(url=servers.database_url, **servers.ports)
                said = await inside.run(f"PYTHONPATH=clients /usr/bin/python3 -c '{program}'")
                assert said.endswith(end), f"{program}: {said}"

    await with_own_names(tmp_path, scenario)
