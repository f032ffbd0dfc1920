"""Which hosts could plant cookies for each other."""

import pytest

from sandyard.gateway.credentials import registrable_domain, share_cookies


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("api.example.com", "example.com"),
        ("example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("someone.github.io", "someone.github.io"),
        ("co.uk", None),
        ("localhost", None),
        ("127.0.0.1", None),
        ("::1", None),
    ],
)
def test_the_registrable_domain_of_a_host(host: str, expected: str | None) -> None:
    assert registrable_domain(host) == expected


@pytest.mark.parametrize(
    ("api", "domain", "expected"),
    [
        ("sandyard.example.com", "sandboxes.example.com", True),
        ("example.com", "Example.com.", True),
        ("sandyard.example.com", "example-sandboxes.com", False),
        ("one.co.uk", "two.co.uk", False),
        ("localhost", "localhost", False),
        ("10.0.0.5", "sandboxes.internal", False),
    ],
)
def test_hosts_below_one_registered_domain_share_cookies(
    api: str, domain: str, *, expected: bool
) -> None:
    assert share_cookies(api, domain) is expected
