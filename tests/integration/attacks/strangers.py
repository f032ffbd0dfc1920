"""Attacks by somebody without an account."""

import json

from tests.integration.attacks.attacker import NEVER_READ, Attacker

LOGIN = "/api/v1/auth/login"
JSON = {"Content-Type": "application/json"}


async def unknown_keys(attacker: Attacker) -> None:
    keys = json.dumps({f"unknown_{number:012}": number for number in range(30_000)}).encode()
    await attacker.at_once(60, lambda: attacker.request("POST", LOGIN, keys, headers=JSON))


async def passwords(attacker: Attacker) -> None:
    wrong = json.dumps({"login": "nobody", "password": "wrong-password-of-nobody"}).encode()
    await attacker.at_once(60, lambda: attacker.request("POST", LOGIN, wrong, headers=JSON))


async def unknown_hosts(attacker: Attacker) -> None:
    host, body = "8080-sbx-abcdefghijklmnopq.localhost", bytes(1_000_000)
    await attacker.at_once(60, lambda: attacker.request("PUT", "/", body, to=host))


async def pages(attacker: Attacker) -> None:
    await attacker.at_once(60, lambda: attacker.request("GET", "/console/login"))


async def documents(attacker: Attacker) -> None:
    await attacker.at_once(60, lambda: attacker.request("GET", "/openapi.json"))


async def slow_readers(attacker: Attacker) -> None:
    """Responses of half a megabyte that nobody reads."""
    asked = 500
    await attacker.at_once(
        asked, lambda: attacker.request("GET", "/openapi.json", reads=NEVER_READ)
    )


async def claims_without_a_token(attacker: Attacker) -> None:
    body = json.dumps({"a": [[]] * 300_000}).encode()
    await attacker.at_once(60, lambda: attacker.request("POST", "/v1/allocate", body, headers=JSON))
