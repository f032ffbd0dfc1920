"""When a start has ended, as the client sees it."""

import json
from dataclasses import fields

from sandyard_client import sandbox_flows as flows
from sandyard_client.models import SandboxAnswer
from sandyard_client.wire import Answer

from tests.unit.client.scripted import Script


def told(status: str) -> Answer:
    body = dict.fromkeys(each.name for each in fields(SandboxAnswer)) | {"status": status}
    return Answer(200, {}, json.dumps(body).encode())


def test_a_start_that_takes_longer_than_the_server_waits_is_waited_for() -> None:
    script = Script(told("starting"), told("starting"), told("running"))
    assert script.run(flows.start(script.calls(), "sbx-1")).status == "running"
    assert {request.path for request in script.sent} == {"/api/v1/sandboxes/sbx-1/start"}
    assert len(script.slept) == 2


def test_a_start_is_not_waited_for_without_end() -> None:
    script = Script(*(told("starting") for _ in range(5000)))
    assert script.run(flows.start(script.calls(), "sbx-1")).status == "starting"
    assert script.now <= 601
