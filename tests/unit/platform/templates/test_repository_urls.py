"""Where a template may come from: no address in which a credential or another scheme could hide."""

import pytest

from sandyard.platform.templates.model import (
    BUILTIN,
    official_templates,
    require_repository_url,
)

LONGEST_HOST = "a" * 253


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/x.git",
        "https://a/b",
        "https://a/b/",
        "https://a/b/c/d",
        "https://Example.COM/A-b_c.d~e+f,g=h",
        f"https://{LONGEST_HOST}/x",
        "https://127.0.0.1/x",
        "https://example.com:1/x",
        "https://example.com:65535/x",
        *(f"builtin:{name}" for name in BUILTIN),
    ],
)
def test_a_plain_address_is_taken_as_it_is(url: str) -> None:
    assert require_repository_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https:///x",
        "https://example.com",
        "https://example.com/",
        "https://example.com//x",
        "https://example.com/a//b",
        "http://example.com/x",
        "HTTPS://example.com/x",
        "git://example.com/x",
        "ssh://git@example.com/x",
        "git@example.com:x.git",
        "file:///etc",
        "ext::sh -c id",
        "https://user@example.com/x",
        "https://user:pass@example.com/x",
        "https://example.com/x?token=1",
        "https://example.com/x#main",
        "https://example.com/%2e",
        "https://example.com/a b",
        "https://example.com/x\n",
        "\nhttps://example.com/x",
        "https://exämple.com/x",
        "https://example.com/ä",
        "https://-example.com/x",
        "https://example.com-/x",
        f"https://{LONGEST_HOST}a/x",
        "https://[::1]/x",
        "https://example.com:/x",
        "https://example.com:65536/x",
        "https://example.com:123456/x",
        "builtin:",
        "builtin:none",
        "builtin:static/",
        "builtin:STATIC",
        "Builtin:static",
    ],
)
def test_any_other_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|Port"):
        require_repository_url(url)


def test_what_ships_with_the_product_may_be_used() -> None:
    official = official_templates()
    assert [each.name for each in official] == list(BUILTIN)
    for each in official:
        assert require_repository_url(each.repository_url) == f"builtin:{each.name}"
        assert each.is_official
