"""Which public keys an account may add."""

import base64
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.ssh_keys.errors import SshKeyInvalidError
from sandyard.platform.ssh_keys.model import SshKey, add_key, new_key_notice, remove_key

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
OWNER = Principal("1" * 12, Role.USER)
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJGwRtCEypbAMtgpY1aqJF6XEjMcLBm2mxtWyoYx1lWY"


Private = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def line_of(private: Private) -> str:
    form = serialization.PublicFormat.OpenSSH
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, form)
    return public.decode()


def added(line: str, by: Principal = OWNER) -> SshKey:
    return add_key("pc", line, ssh_key_id="ssk-1", by=by, cause=CAUSE).result


MAKERS: dict[str, Callable[[], Private]] = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "p-521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "rsa-3072": lambda: rsa.generate_private_key(65537, 3072),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_key_of_every_kind_is_kept(kind: str) -> None:
    line = line_of(MAKERS[kind]())

    assert added(line).public_key == line


def test_a_public_key_is_kept_without_its_comment() -> None:
    key = added(f"  {ED25519} a comment with spaces\n")

    assert key.public_key == ED25519
    assert key.api_key_id is None


def test_the_fingerprint_is_that_of_openssh() -> None:
    assert added(ED25519).fingerprint == "SHA256:/TIWw6NMjBriIcgWbYuLo95OkNU+u/l5I3pz/CbWgws"


@pytest.mark.parametrize(
    "line",
    [
        *("", "ssh-ed25519", "ssh-ed25519 !", "ssh-ed25519 AAAA", f"{ED25519}\n{ED25519}"),
        ED25519.replace("ssh-ed25519 ", "ssh-dss "),
        ED25519.replace("ssh-ed25519 ", "ssh-rsa "),
        f'command="rm" {ED25519}',
        ED25519 + base64.b64encode(b"more").decode(),
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_not_a_public_key_that_is_strong_enough(line: str) -> None:
    with pytest.raises(SshKeyInvalidError):
        added(line)


def test_an_rsa_key_of_2048_bits_is_refused() -> None:
    with pytest.raises(SshKeyInvalidError):
        added(line_of(rsa.generate_private_key(65537, 2048)))


def test_a_key_knows_the_api_key_that_added_it() -> None:
    assert added(ED25519, replace(OWNER, key_id="key-1")).api_key_id == "key-1"


def test_its_owner_is_told_of_a_new_key() -> None:
    assert added(ED25519).fingerprint in new_key_notice(added(ED25519)).message


def test_a_removed_key_leaves_its_time() -> None:
    removed = remove_key(added(ED25519), CAUSE)

    assert removed.result.deleted_at == CAUSE.at
    assert [event.kind for event in removed.events] == ["ssh_key.removed"]
