"""Addresses that several parts know."""

from sandyard.settings import Settings

PROGRAM_PORT = 8080
"""The port that programs are told to listen on."""

_LOCAL_URL = "http://localhost:8080"


def public_url(settings: Settings) -> str:
    return (settings.platform.public_url or _LOCAL_URL).rstrip("/")
