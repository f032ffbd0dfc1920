"""What the egress proxy takes for a request, and what it sends on of it."""

import pytest

from sandyard.runtime.egress.http_heads import ProxyError, ProxyRequest, parse_request


def head(first: str, *fields: str) -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("line", "host", "port"),
    [
        ("CONNECT pypi.org:443 HTTP/1.1", "pypi.org", 443),
        ("CONNECT PyPI.org.:443 HTTP/1.0", "pypi.org", 443),
        ("CONNECT [::1]:8443 HTTP/1.1", "::1", 8443),
    ],
)
def test_a_tunnel_is_asked_for(line: str, host: str, port: int) -> None:
    assert parse_request(head(line, "Host: other")) == ProxyRequest(host, port)


def test_a_plain_request_is_written_anew() -> None:
    """Its host is that of its URL; what is meant for the proxy stays here."""
    request = parse_request(
        head(
            "GET http://Deb.debian.org/debian?x=1 HTTP/1.1",
            "Host: 169.254.169.254",
            "Proxy-Authorization: Basic eDp5",
            "Proxy-Connection: keep-alive",
            "Connection: keep-alive, X-Hop",
            "X-Hop: 1",
            "Accept: */*",
        )
    )
    assert (request.host, request.port, request.body_bytes) == ("deb.debian.org", 80, 0)
    assert request.head == (
        b"GET /debian?x=1 HTTP/1.1\r\nHost: Deb.debian.org\r\naccept: */*\r\n"
        b"Connection: close\r\n\r\n"
    )


def test_a_url_without_a_path_asks_for_the_root() -> None:
    request = parse_request(head("GET http://a.org:8080?q HTTP/1.1"))
    assert request.head is not None
    assert request.head.startswith(b"GET /?q HTTP/1.1\r\nHost: a.org:8080\r\n")


def test_a_body_is_as_long_as_it_says() -> None:
    request = parse_request(head("POST http://a.org/ HTTP/1.1", "Content-Length: 12"))
    assert request.body_bytes == 12


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("GET / HTTP/1.1", ["Host: a.org"]),
        ("GET https://a.org/ HTTP/1.1", []),
        ("GET ftp://a.org/ HTTP/1.1", []),
        ("GET http://user@a.org/ HTTP/1.1", []),
        ("GET http://a.org@b.org/ HTTP/1.1", []),
        ("GET http://a.org#b/ HTTP/1.1", []),
        ("GET http://a.org\\@b.org/ HTTP/1.1", []),
        ("GET http://[::1%25lo]/ HTTP/1.1", []),
        ("GET http:///x HTTP/1.1", []),
        ("GET http://a.org:0/ HTTP/1.1", []),
        ("GET http://a.org:99999/ HTTP/1.1", []),
        ("GET http://a.org/ a HTTP/1.1", []),
        ("GET http://a.org/ HTTP/2.0", []),
        ("GET http://a\x00.org/ HTTP/1.1", []),
        ("GET http://\xff.org/ HTTP/1.1", []),
        ("CONNECT a.org HTTP/1.1", []),
        ("CONNECT a.org:99999 HTTP/1.1", []),
        ("CONNECT a.org:443/x HTTP/1.1", []),
        ("CONNECT a.org:443@b.org:1 HTTP/1.1", []),
        ("CONNECT http://a.org:443 HTTP/1.1", []),
        ("CONNECT \xff:443 HTTP/1.1", []),
        ("GET http://a.org/ HTTP/1.1", ["Host : a.org"]),
        ("GET http://a.org/ HTTP/1.1", ["X: 1", " folded"]),
        ("GET http://a.org/ HTTP/1.1", ["X: 1\nY: 2"]),
        ("GET http://a.org/ HTTP/1.1", ["no colon"]),
        ("POST http://a.org/ HTTP/1.1", ["Content-Length: 1", "Content-Length: 2"]),
        ("POST http://a.org/ HTTP/1.1", ["Content-Length: +1"]),
        ("POST http://a.org/ HTTP/1.1", ["Content-Length: 1, 1"]),
        ("POST http://a.org/ HTTP/1.1", ["Content-Length: 1", "Transfer-Encoding: chunked"]),
        ("POST http://a.org/ HTTP/1.1", ["Transfer-Encoding: identity"]),
        ("nonsense", []),
        ("", []),
    ],
)
def test_anything_else_is_refused(line: str, fields: list[str]) -> None:
    with pytest.raises(ProxyError):
        parse_request(head(line, *fields))


def test_connection_can_not_drop_the_length() -> None:
    fields = ["Connection: Content-Length", "Content-Length: 5"]
    request = parse_request(head("POST http://a.org/ HTTP/1.1", *fields))
    assert request.head is not None
    assert b"content-length: 5" in request.head
