"""The attacks of the prober: each is a row of `ATTACKS`, and runs in a process of its own.

To add one, write a coroutine that attacks until it is cancelled, and add a row. What it sends goes
through the attacker's uplink, which has 10 MB/s.
"""

import asyncio
import json
import sys

from sandyard.kit.free_ports import free_port
from tests.integration.attacks import doors, strangers, tenants
from tests.integration.attacks.attacker import Attack, Attacker

_SMALL_DISK = {"DISK_RESERVE_GB": "1", "SANDBOX_STORAGE_GB": "4", "QUOTA_STORAGE_GB": "20"}
_SSH = {"SSH_PORT": str(free_port()), "SSH_HOST": "127.0.0.1"}
ATTACKS = {
    "unknown keys": Attack(strangers.unknown_keys, in_ci=True),
    "passwords": Attack(strangers.passwords),
    "unknown hosts": Attack(strangers.unknown_hosts),
    "pages": Attack(strangers.pages),
    "documents": Attack(strangers.documents),
    "slow readers": Attack(strangers.slow_readers),
    "claims without a token": Attack(strangers.claims_without_a_token),
    "builds without a newline": Attack(tenants.builds, in_ci=True),
    "listings with attributes": Attack(tenants.listings, in_ci=True),
    "JSON messages": Attack(tenants.messages),
    "1,980 followers": Attack(tenants.followers),
    "disk filling": Attack(tenants.fill_disk, settings=_SMALL_DISK, disk_megabytes=3000),
    "gzip uploads": Attack(tenants.uploads),
    "images that grow": Attack(tenants.images),
    "Dockerfiles that grow": Attack(tenants.dockerfiles),
    "long answers with keys": Attack(tenants.commands),
    "SSH that nobody reads": Attack(tenants.unread_ssh, settings=_SSH),
    "MCP calls": Attack(doors.mcp_calls),
    "contents of volumes": Attack(doors.volume_contents),
    "PATCH in a loop": Attack(tenants.changes),
    "revoked streams": Attack(tenants.revoked_streams),
    "replace in a loop": Attack(tenants.replacements, in_ci=True),
}

if __name__ == "__main__":
    has = json.loads(sys.argv[2])
    attacker = Attacker(**has, is_ready=lambda: print("attacking", flush=True))  # noqa: T201
    asyncio.run(ATTACKS[sys.argv[1]].run(attacker))
