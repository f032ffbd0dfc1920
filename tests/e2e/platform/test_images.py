"""One's own image, from a registry to a running program, against `sandyard serve`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.e2b_api.conftest import e2b_key
from tests.support.runtime.images import SETTINGS, distroless, with_bash, with_shell
from tests.support.runtime.root_file_systems import (
    docker_archive,
    gzipped,
    image_config,
    member,
    tar,
)
from tests.support.servers.processes import ServerProcess, run_command, sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.registry import PASSWORD, USERNAME, Registry, running_registry

SERVE_IF_SET = (
    "echo no settings yet >&2; . /workspace/settings || exit 3; "
    "echo $NAME > /workspace/name; exec /bin/busybox httpd -f -p 8080 -h /workspace"
)
BUILD = r"""
import sys
from e2b import Sandbox, Template

host, folder = sys.argv[1:]
login = {"username": "ann", "password": "registry-password"}
steps = Template().from_image(f"{host}/base:1", **login)
steps = steps.run_cmd("echo step > ~/made; id -u > ~/who").set_user("app")
Template.build(steps, "from-image")
with Sandbox.create("from-image") as box:
    print(box.commands.run("cat ~/made ~/who", user="user").stdout)
    print("app:", box.commands.run("id -u; id -g; echo $HOME").stdout.split())
docker = f"FROM {host}/open:1\nARG NAME=x\nENV GREETING=hello-$NAME\nWORKDIR /home/user\n"
docker += "COPY given.txt copied.txt\nRUN echo $GREETING > greeting\nEXPOSE 80\n"
Template.build(Template(file_context_path=folder).from_dockerfile(docker), "from-dockerfile")
with Sandbox.create("from-dockerfile") as box:
    print(box.commands.run("cat copied.txt greeting", cwd="/home/user").stdout)
try:
    Template.build(Template().from_image(f"{host}/base:1"), "without-login")
except Exception as error:
    print("REFUSED", error)
"""


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, Registry]]:
    """One for everybody, and one with passwords."""
    folder = tmp_path_factory.mktemp("registries")
    with (
        running_registry(folder / "open") as everybodys,
        running_registry(folder / "closed", has_auth=True) as closed,
    ):
        everybodys.push("web:1", distroless(), config=image_config(**SETTINGS))
        settings = image_config(Env=["OWN=of the image"])
        everybodys.push("open:1", with_bash(), config=settings)
        closed.push("base:1", with_bash(), config=settings)
        closed.push("tool:1", with_shell(), config=image_config(Cmd=["sh", "-c", "sleep 600"]))
        yield everybodys, closed


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, registries: tuple[Registry, Registry]
) -> Iterator[ServerProcess]:
    named = ",".join(f"http://{each.host}" for each in registries)
    environment = {
        "IMAGE_REGISTRIES": named,
        "IMAGE_MAX_GB": "0.05",
        "IMAGES_PER_ACCOUNT": "8",
        "IMAGES_INTERVAL_SEC": "1",
    }
    with sandyard_serve(
        tmp_path_factory.mktemp("images") / "data", environment=environment
    ) as made:
        yield made


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


@pytest.fixture(scope="module")
def bob(server: ServerProcess, ann: Person) -> Person:
    return signed_up(server, "bob", mail=2)


def done(person: Person, image: Any) -> Any:
    path = f"/images/{image['image_id']}"
    return until(lambda: (found := person.call("GET", path))["status"] != "pulling" and found)


def template_of(person: Person, image_id: str, name: str, **fields: Any) -> Any:
    body = {"name": name, "category": "web", "language": "any", "image": image_id, **fields}
    return person.call("POST", "/templates", body, expect=201)


def started(person: Person, template: Any, name: str) -> Any:
    wanted = {
        "name": name,
        "template_id": template["template_id"],
        "cpu_spec": 1,
        "memory_spec": 1,
        "max_running_seconds": 600,
    }
    made = person.call("POST", "/sandboxes", wanted, expect=201)
    return person.call("POST", f"/sandboxes/{made['sandbox_id']}/start")


def test_from_a_pull_to_a_running_program_and_back(
    server: ServerProcess, ann: Person, bob: Person, registries: tuple[Registry, Registry]
) -> None:
    name = f"{registries[0].host}/web:1"
    pulled = ann.call("POST", "/images", {"reference": name}, expect=202)
    assert pulled["status"] == "pulling"
    image = done(ann, pulled)
    assert (image["status"], image["reason"]) == ("ready", None)
    assert (image["ports"], image["user_name"]) == ([80], "app:www")
    assert image["progress"]["pulled_bytes"] == image["size_bytes"] > 100_000
    assert image["unpacked_bytes"] > image["size_bytes"]
    path = f"/images/{image['image_id']}"

    # It is hers alone.
    bob.call("GET", path, expect=404)
    bob.call("DELETE", path, expect=404)
    assert bob.call("GET", "/images")["images"] == []
    body = {"name": "x", "category": "web", "language": "any", "image": image["image_id"]}
    bob.call("POST", "/templates", body, expect=404)

    # A sandbox runs its program as its user, on its port.
    template = template_of(ann, image["image_id"], "my image")
    assert template["image"] == template["environment"] == image["image_id"]
    running = started(ann, template, "my box")
    assert running["program"]["status"] == "running", running
    page = page_of(ann, running["preview_url"], "/who")
    assert page.text.splitlines() == ["101", "33", "/data/inner", "hello /home/app"]

    # While it is used it stays; then it goes, and is no longer counted.
    storage = {each["resource"]: each for each in ann.call("GET", "/me/quota")["quotas"]}
    assert storage["storage_gb"]["in_use"] > 0
    refused = ann.call("DELETE", path, expect=409)
    assert refused["error"]["code"] == "IMAGE_IN_USE"
    ann.call("DELETE", f"/templates/{template['template_id']}", expect=204)
    ann.call("DELETE", path, expect=409)
    ann.call("DELETE", f"/sandboxes/{running['sandbox_id']}")
    ann.call("DELETE", path, expect=204)
    ann.call("GET", path, expect=404)


def test_limits_of_size_and_number_are_kept(
    server: ServerProcess, bob: Person, registries: tuple[Registry, Registry]
) -> None:
    zeros = gzipped(tar(member("zeros", bytes(64 << 20))))
    registries[0].push("bomb:1", zeros, config=image_config())
    name = f"{registries[0].host}/bomb:1"
    assert len(zeros) < 1 << 20
    failed = done(bob, bob.call("POST", "/images", {"reference": name}, expect=202))
    assert (failed["status"], failed["reason"]) == ("failed", "It is too large.")
    for _ in range(7):
        bob.call("POST", "/images", {"reference": "10.0.0.1/x"}, expect=202)
    refused = bob.call("POST", "/images", {"reference": name}, expect=409)
    assert refused["error"]["code"] == "IMAGES_LIMIT_EXCEEDED"
    found = bob.call("GET", "/images?q=10.0.0.1")["images"]
    reasons = {done(bob, each)["reason"] for each in found}
    assert reasons == {
        "The registry has a private address. Ask the operator to name it in IMAGE_REGISTRIES."
    }


def test_credentials_come_from_a_secret(ann: Person, registries: tuple[Registry, Registry]) -> None:
    name = f"{registries[1].host}/tool:1"
    failed = done(ann, ann.call("POST", "/images", {"reference": name}, expect=202))
    assert failed["status"] == "failed"
    assert failed["reason"].startswith("The registry has no such image")
    project = ann.call("GET", "/projects")["projects"][0]["project_id"]
    body = {"reference": name, "project_id": project, "secret": "REGISTRY"}
    assert ann.call("POST", "/images", body, expect=404)["error"]["code"] == (
        "REGISTRY_SECRET_NOT_FOUND"
    )
    secret = {"value": f"{USERNAME}:{PASSWORD}", "secret": True}
    ann.call("PUT", f"/projects/{project}/env/REGISTRY", secret)
    image = done(ann, ann.call("POST", "/images", body, expect=202))
    assert image["status"] == "ready", image
    running = started(ann, template_of(ann, image["image_id"], "tool"), "tool box")
    assert running["program"]["status"] == "running"


def test_commands_import_an_image_and_mend_its_program_that_fails(
    server: ServerProcess, ann: Person, registries: tuple[Registry, Registry], tmp_path: Path
) -> None:
    key = ann.call("POST", "/api-keys", {"name": "cli"}, expect=201)["api_key"]
    environment = {"SANDYARD_URL": server.url, "SANDYARD_API_KEY": key}

    def command(*words: str, code: int = 0) -> str:
        ran = run_command(*words, environment=environment)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    archive = tmp_path / "saved.tar"
    settings = image_config(Cmd=["sh", "-c", SERVE_IF_SET], ExposedPorts={"8080/tcp": {}})
    archive.write_bytes(docker_archive(with_shell(), config=settings))
    assert "ready" in command("image", "import", str(archive), "--name", "by hand")
    assert "ready" in command("image", "pull", f"{registries[0].host}/web:1")
    assert "failed" in command("image", "pull", f"{registries[0].host}/missing:1", code=1)
    assert "by hand" in command("image", "ls")
    [made] = ann.call("GET", "/images?q=by+hand")["images"]
    image_id = made["image_id"]

    assert image_id in command("template", "create", "mendable", "--image", image_id)
    assert "mendable" in command("template", "ls", "--own")
    options = ("--template", "mendable", "--program-policy", "never")
    said = command("sandbox", "create", "mended", *options)
    assert "Its program failed. It ended with code" in said
    assert "no settings yet" in said, "its last lines"
    command("sandbox", "stop", "mended")
    (tmp_path / "settings").write_text("NAME=mended\n")
    command("sandbox", "cp", str(tmp_path / "settings"), "mended:/workspace/settings")
    started = json.loads(command("sandbox", "start", "mended", "--rescue", "-o", "json"))
    assert (started["status"], started["program"]["status"]) == ("running", "stopped")
    served = json.loads(command("sandbox", "program", "mended", "start", "-o", "json"))
    assert served["program"]["status"] == "running", served
    assert page_of(ann, served["preview_url"], "/name").text == "mended\n"
    extended = json.loads(command("sandbox", "extend", "mended", "604800", "-o", "json"))
    assert extended["timeout_at"] > started["timeout_at"]

    command("sandbox", "rm", "mended")
    command("template", "rm", "mendable")
    command("image", "rm", image_id)
    assert "by hand" not in command("image", "ls")


def test_builds_of_the_sdk_start_from_images_and_dockerfiles(
    server: ServerProcess, ann: Person, registries: tuple[Registry, Registry], tmp_path: Path
) -> None:
    (tmp_path / "given.txt").write_text("given\n")
    url = f"{server.url}/e2b"
    environment = {"E2B_API_KEY": e2b_key(ann), "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    script = BUILD.replace("{host}/open", registries[0].host + "/open")
    words = [sys.executable, "-c", script, registries[1].host, str(tmp_path)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    lines = [each for each in ran.stdout.splitlines() if each]
    assert lines[:2] == ["step", "1000"]
    assert "app: ['101', '33', '/srv']" in lines
    assert "given" in lines
    assert "hello-x" in lines
    assert any(each.startswith("REFUSED") and "no such image" in each for each in lines)
    names = [each["reference"] for each in ann.call("GET", "/images?status=ready")["images"]]
    assert names.count(f"{registries[1].host}/base:1") == 1


def test_the_command_builds_a_template_from_a_dockerfile(
    server: ServerProcess, ann: Person, registries: tuple[Registry, Registry], tmp_path: Path
) -> None:
    key = ann.call("POST", "/api-keys", {"name": "builds"}, expect=201)["api_key"]
    environment = {"SANDYARD_URL": server.url, "SANDYARD_API_KEY": key}
    (tmp_path / "given.txt").write_text("given\n")
    (tmp_path / "left-out.txt").write_text("")
    (tmp_path / ".dockerignore").write_text("left-*\n")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        f"FROM {registries[0].host}/open:1\nWORKDIR /srv\nCOPY --chown=app . .\n"
        "USER app\nRUN id -u; ls; cat given.txt > made.txt\n"
        "ENV GREETING=hey\nCMD echo $(id -u):$(id -g) $HOME $GREETING > began; exec sleep 600\n"
    )
    built = run_command("template", "build", "docked", str(tmp_path), environment=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    said = built.stdout.split()
    assert {"101", "given.txt"} < set(said)
    assert "left-out.txt" not in said
    [template] = ann.call("GET", "/templates?q=docked")["templates"]
    running = started(ann, template, "from docked")
    command = {"command": ["cat", "/srv/made.txt"]}
    done = ann.call("POST", f"/sandboxes/{running['sandbox_id']}/commands", command, expect=201)
    assert done["result"]["stdout"] == "given\n"
    assert running["program"]["status"] == "running"
    line = "until [ -s /srv/began ]; do :; done; cat /srv/began; rm /srv/began"
    for _ in range(2):
        path, as_root = f"/sandboxes/{running['sandbox_id']}", {"command": line, "user": "root"}
        done = ann.call("POST", f"{path}/commands", as_root, expect=201)
        assert done["result"]["stdout"] == "101:33 /srv hey\n", done
        ann.call("POST", f"{path}/program/restart")
    dockerfile.write_text("FROM a\n\nHEALTHCHECK CMD true\n")
    refused = run_command("template", "build", "no", str(tmp_path), environment=environment)
    assert refused.returncode == 2
    assert "line 3: HEALTHCHECK" in refused.stderr
