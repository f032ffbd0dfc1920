"""The machine that this process runs in, as the only one that calls act in."""

import os
import shutil
import time
from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any

from sandyard.e2b_api.envd.machine import Credentials, UserSession
from sandyard.e2b_api.envd.paths import known_user
from sandyard.e2b_api.envd.standalone.client import SystemClient
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError
from sandyard.e2b_api.tokens import signature_of
from sandyard.runtime.local.client.session import LocalSession


class ThisMachine:
    """`Machines` and `Machine` in one. Whatever user a call names, it acts as this process's
    user, in its home."""

    id = "this"

    def __init__(self, token: str, *, home: str | None = None) -> None:
        self._token = token
        self._home = home or str(Path.home())
        self._session = LocalSession(SystemClient())

    async def authorize(self, credentials: Credentials) -> str:
        token, link = credentials.token, credentials.link
        if token is not None and compare_digest(token.encode(), self._token.encode()):
            return self.id
        if link is None:
            raise AccessTokenMissingError
        if not compare_digest(link.signature, signature_of(link, self._token)):
            raise AccessTokenMissingError("invalid signature")
        if link.is_over(time.time()):
            raise LinkOverError
        return self.id

    async def enter(self, _machine_id: str | None) -> "ThisMachine":
        return self

    async def open(self, user: str | None) -> UserSession:
        return UserSession(self, self._session, known_user(user), self._home, self._home)

    async def variables(self, session: UserSession) -> Mapping[str, str]:
        names = {"HOME": self._home, "USER": session.user, "LOGNAME": session.user}
        return {**os.environ, **names, "SHELL": "/bin/bash", "E2B_SANDBOX": "true"}

    async def metrics(self) -> Mapping[str, Any]:
        cpus, disk = os.cpu_count() or 1, shutil.disk_usage(self._home)
        memory = _memory()
        return {
            "ts": int(time.time()),
            "cpu_count": cpus,
            "cpu_used_pct": round(min(1.0, os.getloadavg()[0] / cpus) * 100, 2),
            "mem_total": memory["MemTotal"],
            "mem_used": memory["MemTotal"] - memory["MemAvailable"],
            "disk_used": disk.used,
            "disk_total": disk.total,
        }


def _memory() -> Mapping[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: int(value.split()[0]) << 10 for name, _, value in pairs}
