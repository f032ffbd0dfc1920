"""Whether two hosts can set cookies for each other, by Mozilla's public suffix list."""

from ipaddress import ip_address


def registrable_domain(host: str) -> str | None:
    """The registered domain, such as `example.co.uk`; None for an address and for a public suffix,
    such as `localhost`: no cookie can be set for those."""
    if _is_address(host):
        return None
    from publicsuffixlist import PublicSuffixList

    found = PublicSuffixList().privatesuffix(host.lower().rstrip("."))
    return None if found is None else str(found)


def share_cookies(host: str, other: str) -> bool:
    registrable = registrable_domain(host)
    return registrable is not None and registrable == registrable_domain(other)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
