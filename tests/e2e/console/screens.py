"""Where every screen of the console is, with what there is to show."""

from tests.e2e.console.readings import HARDWARE_ID, send_reading
from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import ServerProcess


def screens_of(session: ConsoleSession) -> list[str]:
    """For an admin: pages, and what their charts ask for."""
    device = f"/console/devices/{HARDWARE_ID}"
    labs, sandboxes, devices = "/console/labs", "/console/sandboxes", "/console/devices"
    leased = session.call("GET", "/v1/admin/sandboxes?limit=1").json()["sandboxes"][0]
    listed = session.call("GET", "/api/v1/sandboxes?q=with+events").json()["sandboxes"]
    sandbox = listed[0]["sandbox_id"]
    project = session.call("GET", "/api/v1/projects?limit=1").json()["projects"][0]
    return [
        *("/console", labs, f"{labs}?status=allocated", f"{labs}?q=sandbox-00"),
        *(f"{labs}/charts/pool", f"{labs}/charts/leases", f"{labs}/waiting"),
        *(f"{labs}/reservations", f"{labs}/jobs", f"{labs}/sandboxes/{leased['sandbox_id']}"),
        *(sandboxes, f"{sandboxes}?q=box", f"{sandboxes}/new"),
        *(f"{sandboxes}/{sandbox}", f"{sandboxes}/{sandbox}/chart"),
        *("/console/projects", f"/console/projects/{project['project_id']}"),
        *(devices, device, f"{device}/chart?range=24h&metric=temperature"),
        *("/console/account", "/console/account/chart", "/console/account/events"),
        *("/console/admin", "/console/admin/events", "/console/admin/events?part=platform"),
        "/console/admin/integrations",
    ]


def make_one_of_each(server: ServerProcess, session: ConsoleSession) -> None:
    """A sandbox and a device whose pages have something to show."""
    found = session.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    body = {"name": "with events", "template_id": found["templates"][0]["template_id"]}
    session.call("POST", "/api/v1/sandboxes", body)
    made = session.call("POST", "/telemetry/v1/api-keys", {}).json()
    send_reading(server, made["api_key"], "north")
