"""The accounts of the console's tests: two tenants and an admin."""

import time
from email import message_from_bytes
from pathlib import Path

import httpx

from tests.support.servers.processes import ServerProcess, run_command

ANN, BOB, ADMIN = "ann", "bob", "ada"


def open_accounts(server: ServerProcess) -> None:
    for name in (ANN, BOB):
        open_account(server, name)
    _make_admin(server.data_dir)


def open_account(server: ServerProcess, name: str) -> None:
    with httpx.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:
        body = {"email": f"{name}@example.com", "username": name, "password": password(name)}
        client.post("/auth/signup", json=body).raise_for_status()
        token = mailed(server.data_dir, f"{name}@example.com")
        client.post("/auth/verify", json={"token": token}).raise_for_status()


def _make_admin(data_dir: Path) -> None:
    command = ["users", "create-admin", "--password-stdin"]
    whose = ["--email", f"{ADMIN}@example.com", "--username", ADMIN, "--data-dir", str(data_dir)]
    run_command(*command, *whose, text=f"{password(ADMIN)}\n").check_returncode()


def password(name: str) -> str:
    return f"{name} has a password"


def mailed(data_dir: Path, address: str) -> str:
    """The token of the mail to this address, once it is there."""
    for _ in range(600):
        for path in (data_dir / "outbox").glob("*.eml"):
            mail = message_from_bytes(path.read_bytes())
            text = mail.get_payload(decode=True)
            if mail["To"] == address and isinstance(text, bytes) and b"Token: " in text:
                return text.decode().partition("Token: ")[2].split()[0]
        time.sleep(0.05)
    raise AssertionError(f"no mail to {address}")
