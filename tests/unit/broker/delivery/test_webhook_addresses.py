"""Webhooks reach no address of the server itself, not even a public one."""

import subprocess
import sys

_TRIES = """
from sandyard.broker.delivery.errors import WebhookAddressError
from sandyard.broker.delivery.webhooks import WebhookClient
from sandyard.kit.clock import SystemClock
from sandyard.kit.public_addresses import networks_of

for allowed in ([], ["8.8.4.4/32"]):
    client = WebhookClient(timeout_sec=1, allowed=networks_of(allowed), clock=SystemClock())
    for url in ("https://8.8.4.4/hook", "https://8.8.8.8/hook"):
        try:
            client.require_public(url)
            print("allowed")
        except WebhookAddressError:
            print("refused")
"""


def test_a_public_address_of_this_machine_is_refused_unless_it_is_allowed() -> None:
    """In a network namespace whose loopback has that address."""
    script = 'ip address add 8.8.4.4/32 dev lo && ip link set lo up && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, "-c", _TRIES]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["refused", "allowed", "allowed", "allowed"]
