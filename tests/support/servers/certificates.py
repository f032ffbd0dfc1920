"""A private certificate authority of the tests: one certificate, which vouches for itself."""

import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    file: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context

    def trusting(self) -> ssl.SSLContext:
        """For clients that trust this one alone."""
        return ssl.create_default_context(cafile=str(self.file))


def make_certificate(folder: Path, *names: str) -> Certificate:
    """For these names, such as `IP:127.0.0.1` and `DNS:*.example.org`."""
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command: Sequence[str] = (
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", f"subjectAltName={','.join(names)}"),
        *("-keyout", str(made.key), "-out", str(made.file)),
    )
    subprocess.run(command, check=True, capture_output=True)
    return made
