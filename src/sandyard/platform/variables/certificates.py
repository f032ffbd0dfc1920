"""The certificates by which the programs of a sandbox trust its egress proxy, for the hosts of its
secrets alone.

The authority's key is derived when it is needed, from SECRETS_KEY and the sandbox's id: it is
stored nowhere, never leaves the server, and is the same at each start.
"""

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sandyard.runtime.secrets_model import BoundSecret, MachineSecrets

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, KeyUsage, Name

_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256."""
_BEFORE, _VALID = timedelta(days=2), timedelta(days=3650)


class SandboxAuthorities:
    """`keys` are those of SECRETS_KEY. The last is used: it stays when they are rotated."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys

    def issue(
        self, sandbox_id: str, bound: Sequence[BoundSecret], *, now: datetime
    ) -> MachineSecrets:
        """These secrets, with a certificate for their hosts by the sandbox's authority."""
        # Here, because few sandboxes need it.
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        own, key = self._key(sandbox_id), ec.generate_private_key(ec.SECP256R1())
        name, leaf = _name(f"Sandyard {sandbox_id}"), _name("Sandyard egress proxy")
        issuer = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
        authority = (
            _builder(name, name, own, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(issuer, critical=False)
        )
        hosts = sorted({host.partition(":")[0] for secret in bound for host in secret.hosts})
        names = x509.SubjectAlternativeName(list(map(x509.DNSName, hosts)))
        by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
        subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        served = (
            _builder(leaf, name, key, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(names, critical=False)
            .add_extension(by, critical=False)
            .add_extension(subject, critical=False)
        )
        signed = (each.sign(own, hashes.SHA256()) for each in (authority, served))
        trusted, certificate = map(_pem, signed)
        return MachineSecrets(bound, trusted, certificate, _key_pem(key))

    def _key(self, sandbox_id: str) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec

        label = f"certificates of {sandbox_id}".encode()
        digest = hmac.digest(self._keys[-1].encode(), label, hashlib.sha512)
        number = int.from_bytes(digest) % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())


def _name(text: str) -> "Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: "Name", issuer: "Name", key: "EllipticCurvePrivateKey", now: datetime
) -> "CertificateBuilder":
    from cryptography import x509

    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _BEFORE,
        not_valid_after=now + _VALID,
    )


def _usage(*, signs: bool) -> "KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
