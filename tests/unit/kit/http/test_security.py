"""Bearer tokens and API keys, as they are read from the headers of a request."""

import pytest
from starlette.requests import Request

from sandyard.kit.errors import RepeatedCredentialError, UnauthorizedError
from sandyard.kit.http.security import BearerGuard, Credential, find_credential

TOKEN = b"Secret-Token-1"
NOT_ACCEPTED = {
    "missing": None,
    "empty": b"",
    "a scheme alone": b"Bearer",
    "a scheme and a space": b"Bearer ",
    "a wrong token": b"Bearer wrong-token",
    "no scheme": TOKEN,
    "basic": b"Basic " + TOKEN,
    "another scheme": b"Token " + TOKEN,
    "a scheme with a colon": b"Bearer: " + TOKEN,
    "no space": b"Bearer" + TOKEN,
    "a tab instead of a space": b"Bearer\t" + TOKEN,
    "a second word": b"Bearer " + TOKEN + b" more",
    "a longer token": b"Bearer " + TOKEN + b"x",
    "a shorter token": b"Bearer " + TOKEN[:-1],
    "another case": b"Bearer " + TOKEN.upper(),
    "quoted": b'Bearer "' + TOKEN + b'"',
    "two with a comma": b"Bearer " + TOKEN + b"," + TOKEN,
    "10 kB": b"Bearer " + b"a" * 10_240,
    "UTF-8": "Bearer träck".encode(),
    "Latin-1": "Bearer träck".encode("latin-1"),
    "neither": b"Bearer \xff\xfe\xfd",
}


def request(*headers: tuple[bytes, bytes]) -> Request:
    return Request({"type": "http", "headers": list(headers)})


@pytest.mark.parametrize("value", NOT_ACCEPTED.values(), ids=NOT_ACCEPTED)
async def test_a_bearer_token_is_refused(value: bytes | None) -> None:
    headers = [] if value is None else [(b"authorization", value)]
    with pytest.raises(UnauthorizedError):
        await BearerGuard([TOKEN.decode()]).require(request(*headers))


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER", b"Bearer "])
async def test_the_scheme_is_read_in_any_case(scheme: bytes) -> None:
    sent = (b"authorization", scheme + b" " + TOKEN)
    await BearerGuard(["another", TOKEN.decode()]).require(request(sent))


@pytest.mark.parametrize("first", [b"Bearer wrong-token", b"Bearer " + TOKEN])
async def test_two_bearer_tokens_are_refused(first: bytes) -> None:
    twice = [(b"authorization", first), (b"authorization", b"Bearer " + TOKEN)]
    with pytest.raises(RepeatedCredentialError):
        await BearerGuard([TOKEN.decode()]).require(request(*twice))


def test_a_credential_is_a_bearer_token_or_an_api_key() -> None:
    assert find_credential([]) is None
    assert find_credential([(b"authorization", b"Bearer a")]) == Credential("a", is_key=False)
    assert find_credential([(b"x-api-key", b"k")]) == Credential("k", is_key=True)
    assert find_credential([(b"authorization", b"Basic a")]) == Credential("", is_key=False)


def test_a_bearer_token_beside_an_api_key_is_refused_unless_the_key_wins() -> None:
    both = [(b"authorization", b"Bearer a"), (b"x-api-key", b"k")]
    with pytest.raises(RepeatedCredentialError):
        find_credential(both)
    assert find_credential(both, key_wins=True) == Credential("k", is_key=True)
    with pytest.raises(RepeatedCredentialError):
        find_credential([(b"x-api-key", b"k"), (b"x-api-key", b"k")], key_wins=True)
