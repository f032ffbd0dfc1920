"""A certificate and a key that do not fit: the file is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandyard.entrypoints.server.listeners import Tls, TlsFilesError
from tests.support.servers.certificates import Certificate, make_certificate


@pytest.fixture
def pair(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path, "DNS:localhost")


def test_files_that_fit_are_accepted(pair: Certificate) -> None:
    Tls(pair.file, pair.key).require_usable()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            lambda pair, other: (pair.file, other.key),
            "--tls-key {key} is not the key of",
        ),
        (lambda pair, _: (pair.key, pair.key), "--tls-cert {cert} is not a certificate in PEM"),
        (lambda pair, _: (pair.file, pair.file), "--tls-key {key} is not a key in PEM"),
        (lambda pair, _: (pair.file, Path("/none")), "can't be read: No such file or directory"),
    ],
    ids=["another's key", "no certificate", "no key", "no file"],
)
def test_files_that_do_not_fit_are_named(
    pair: Certificate,
    tmp_path: Path,
    files: Callable[[Certificate, Certificate], tuple[Path, Path]],
    message: str,
) -> None:
    (tmp_path / "other").mkdir()
    certificate, key = files(pair, make_certificate(tmp_path / "other", "DNS:localhost"))
    with pytest.raises(TlsFilesError) as refused:
        Tls(certificate, key).require_usable()
    assert message.format(cert=certificate, key=key) in refused.value.message
