"""The databases and a copy of the store of files are a complete backup: nothing else of a node."""

import shutil
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.e2b_api.conftest import e2b_key
from tests.e2e.operations.test_backup import run
from tests.support.runtime.images import SETTINGS, distroless
from tests.support.runtime.root_file_systems import docker_archive, image_config
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until

ENVIRONMENT = {"PARTS": "platform", "API_KEY_PEPPER": "", "JWT_SECRET": "", "QUOTA_SANDBOXES": "5"}


def imported(ann: Person) -> str:
    """An image, which stays with the account."""
    answer = httpx.post(
        f"{ann.url}/api/v1/images/import?name=own",
        content=docker_archive(distroless(), config=image_config(**SETTINGS)),
        headers=ann.headers,
    )
    path = f"/images/{answer.json()['image_id']}"
    image = until(lambda: (found := ann.call("GET", path))["status"] != "pulling" and found)
    assert image["status"] == "ready", image
    return str(image["image_id"])


def new_sandbox(ann: Person, name: str, template_id: str) -> dict[str, Any]:
    body = {"name": name, "template_id": template_id}
    made = ann.call("POST", "/sandboxes", body, expect=201)
    started: dict[str, Any] = ann.call("POST", f"/sandboxes/{made['sandbox_id']}/start")
    return started


def said(ann: Person, sandbox_id: str) -> str:
    command = {"command": "cat kept"}
    path = f"/sandboxes/{sandbox_id}/commands"
    return str(ann.call("POST", path, command, expect=201)["result"]["stdout"])


def test_databases_and_store_are_complete(tmp_path: Path) -> None:
    """What a node has of the store is only a copy, and deleted here before the backup."""
    file, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    store, copied = tmp_path / "share", tmp_path / "copied"
    with sandyard_serve(
        tmp_path / "data", environment=ENVIRONMENT | {"SNAPSHOT_STORE": f"file:{store}"}
    ) as server:
        ann = signed_up(server, "ann", mail=1)
        key = e2b_key(ann)
        [base] = ann.call("GET", "/templates?visibility=official&q=base")["templates"]
        stopped = new_sandbox(ann, "stopped", base["template_id"])
        box = f"/sandboxes/{stopped['sandbox_id']}"
        line = {"command": "echo the owner > kept"}
        ann.call("POST", f"{box}/commands", line, expect=201)
        snapshot = httpx.post(
            f"{server.url}/e2b{box}/snapshots", headers={"X-API-Key": key}, json={}, timeout=60
        ).json()
        ann.call("POST", f"{box}/stop")
        body = {"name": "own", "category": "web", "language": "any", "image": imported(ann)}
        own = ann.call("POST", "/templates", body, expect=201)["template_id"]
    runtime = server.data_dir / "runtime"
    for copies in ("snapshots", "archives", "images", "environments"):
        assert list((runtime / copies).iterdir()), copies
        shutil.rmtree(runtime / copies)
    run("backup", str(file), "--data-dir", str(server.data_dir), folder=tmp_path)
    shutil.copytree(store, copied)
    for lost in (store, server.data_dir):
        shutil.rmtree(lost)

    run("restore", str(file), "--data-dir", str(elsewhere), folder=tmp_path)
    with sandyard_serve(
        elsewhere, environment=ENVIRONMENT | {"SNAPSHOT_STORE": f"file:{copied}"}
    ) as other:
        ann.url = other.url
        ann.call("POST", f"{box}/start")
        assert said(ann, stopped["sandbox_id"]) == "the owner\n"
        made = httpx.post(
            f"{other.url}/e2b/sandboxes",
            headers={"X-API-Key": key},
            json={"templateID": snapshot["snapshotID"]},
            timeout=60,
        )
        assert made.status_code == 201, made.text
        assert said(ann, made.json()["sandboxID"]) == "the owner\n"
        page = page_of(ann, new_sandbox(ann, "own", own)["preview_url"], "/who")
        assert page.text.splitlines()[0] == "101"
        for each in ann.call("GET", "/sandboxes")["sandboxes"]:
            ann.call("DELETE", f"/sandboxes/{each['sandbox_id']}")
