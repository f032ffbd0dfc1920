"""E2B's SDKs of 2025, which form the hosts of sandboxes themselves and speak HTTPS alone."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.kit.free_ports import free_port
from tests.e2e.e2b_api.conftest import ROOMY, e2b_key
from tests.e2e.e2b_api.test_sdks import ROOT, SCRIPTS, run
from tests.support.servers.processes import run_sandyard, sandyard_serve, wait_until_ready
from tests.support.servers.users import signed_up

TOOLS = ROOT / ".tools"
VERSIONS = ("2.2.7", pytest.param("2.7.0", marks=pytest.mark.torture))
SECRETS = {
    "JWT_SECRET": "the-signing-key-of-the-tests-which-is-long",
    "GATEWAY_SECRET": "the-other-signing-key-of-the-tests-is-long",
    "SECRETS_KEY": "the-encryption-key-of-the-tests-which-is-long",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What an SDK is told of a server with a certificate for its hosts."""
    folder = tmp_path_factory.mktemp("older")
    with sandyard_serve(folder / "data") as server:
        key = e2b_key(signed_up(server, "ann", mail=1))
    certificate, private, port = folder / "cert.pem", folder / "key.pem", free_port()
    make_certificate(certificate, private)
    process = run_sandyard(
        *("serve", "--data-dir", str(folder / "data"), "--port", str(port)),
        *("--tls-cert", str(certificate), "--tls-key", str(private)),
        environment=ROOMY
        | SECRETS
        | {"PARTS": "platform", "SANDBOX_DOMAIN": f"https://box.test:{port}"},
        log=folder / "log",
    )
    trusting = ssl.create_default_context(cafile=str(certificate))
    try:
        wait_until_ready(f"https://127.0.0.1:{port}", process, verify=trusting)
        yield {
            "E2B_API_KEY": key,
            "E2B_DOMAIN": f"box.test:{port}",
            "SSL_CERT_FILE": str(certificate),
            "NODE_EXTRA_CA_CERTS": str(certificate),
        }
    finally:
        process.terminate()
        process.communicate(timeout=60)


def make_certificate(certificate: Path, private: Path) -> None:
    names = "subjectAltName=DNS:*.box.test,IP:127.0.0.1"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=box.test", "-addext", names),
            *("-keyout", str(private), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_calls_of_an_older_sdk(served: dict[str, str], version: str) -> None:
    """One of a year ago, and one of before."""
    python = TOOLS / f"e2b-{version}" / "bin" / "python"
    run([str(python), str(SCRIPTS / "older_calls.py")], served)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_calls_of_an_older_javascript_sdk(served: dict[str, str], version: str) -> None:
    modules = TOOLS / f"e2b-js-{version}" / "node_modules"
    run(["node", str(SCRIPTS / "older_calls.mjs"), str(modules)], served)
