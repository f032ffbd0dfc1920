"""What is deployed besides the code: image, compose file, unit, Kubernetes base, pipeline."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from sandyard import __version__
from sandyard.runtime.remote.envd import PORT
from tests.support.kubernetes.kustomized import kustomized
from tests.support.servers.certificates import make_certificate
from tests.support.servers.processes import sandyard_serve

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "container" / "Dockerfile"
BIN = Path(sys.executable).parent


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded(path: Path) -> list[dict[Any, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_the_dockerfile_has_no_findings() -> None:
    run(BIN / "hadolint", DOCKERFILE)


def test_the_image_runs_without_rights_and_says_how_it_is() -> None:
    last = DOCKERFILE.read_text().rpartition("FROM ")[2]
    assert "USER 10001:10001" in last
    assert "HEALTHCHECK" in last
    assert "COPY --from=build" in last


def test_nothing_but_what_it_is_built_from_goes_to_the_builder() -> None:
    """So that no file with secrets, nor what somebody has compiled, can get into an image."""
    first, *lines = [
        each for each in (ROOT / ".dockerignore").read_text().splitlines() if each[:1] != "#"
    ]
    assert first == "*"
    sent = {each.removeprefix("!") for each in lines if each.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    assert sent == {source for each in copies for source in each.split()}
    assert all((ROOT / each).exists() for each in sent)
    assert {"**/__pycache__", "**/*.egg-info"} == {each for each in lines if each[0] != "!"}


def test_what_the_image_is_made_of_is_listed(tmp_path: Path) -> None:
    run(sys.executable, DEPLOY / "container" / "inventory.py", tmp_path)
    bill = json.loads((tmp_path / "sbom.json").read_text())
    names = {each["name"].lower() for each in bill["components"]}
    assert {"fastapi", "granian", "sqlalchemy", "sandyard"} <= names
    assert "granian" in (tmp_path / "licences.txt").read_text()


def test_uv_is_the_version_that_make_installs() -> None:
    pinned = (DEPLOY / "container" / "requirements.txt").read_text().split()[0]
    assert pinned.removeprefix("uv==") in (ROOT / "Makefile").read_text()


def test_the_compose_file_fits_its_schema() -> None:
    """The schema is that of the Compose Specification, as docker-compose 1.29.2 brings it
    (Apache-2.0)."""
    schema = json.loads((ROOT / "tests" / "fixtures" / "compose_spec.json").read_text())
    [compose] = loaded(DEPLOY / "container" / "compose.yaml")
    mistakes = jsonschema_rs.validator_for(schema).iter_errors(compose)
    assert [f"{each.instance_path}: {each.message}" for each in mistakes] == []


def test_the_compose_file_holds_every_service_that_it_names() -> None:
    [compose] = loaded(DEPLOY / "container" / "compose.yaml")
    services = compose["services"]
    assert set(services) == {"sandyard", "upgrade", "postgres", "prometheus", "grafana"}
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "container" / source).exists(), source
            else:
                assert source in compose["volumes"]
    assert services["sandyard"]["read_only"]
    assert services["sandyard"]["cap_drop"] == ["ALL"]


@pytest.mark.parametrize(
    "folder", sorted((DEPLOY / "kubernetes").iterdir()), ids=lambda path: path.name
)
def test_what_is_applied_to_kubernetes_fits_its_schema(folder: Path) -> None:
    [applied] = loaded(folder / "kustomization.yaml")
    files = {each for each in applied["resources"] if each.endswith(".yaml")}
    patches = {each["path"] for each in applied.get("patches", ()) if "path" in each}
    assert {each.name for each in folder.iterdir()} == {*files, *patches, "kustomization.yaml"}
    assert all(
        (folder / each / "kustomization.yaml").exists() for each in {*applied["resources"]} - files
    )
    for found in (each for file in files for each in loaded(folder / file)):
        kubernetes_validate.validate(found, "1.31", strict=True)


@pytest.mark.parametrize("overlay", ["kind", "eks", "gke"])
def test_an_overlay_as_it_is_applied_fits_the_schemas_and_has_what_it_is_for(overlay: str) -> None:
    applied = kustomized(DEPLOY / "kubernetes" / overlay)
    for each in applied:
        kubernetes_validate.validate(each, "1.31", strict=True)
    found = {(each["kind"], each["metadata"]["name"]): each for each in applied}
    named = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in applied
    ]
    assert len(named) == len(set(named)), "one is applied twice"
    deployment, ingress = found["Deployment", "sandyard"]["spec"], found["Ingress", "sandyard"]
    [container] = deployment["template"]["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["SANDBOX_RUNTIME"] == "kubernetes"
    assert "PARTS" not in environment, "it serves all"
    match overlay:
        case "kind":
            assert (deployment["replicas"], "tls" in ingress["spec"]) == (1, False)
        case "eks":
            account = found["ServiceAccount", "sandyard"]["metadata"]
            assert "eks.amazonaws.com/role-arn" in account["annotations"]
            assert ingress["spec"]["ingressClassName"] == "alb"
        case "gke":
            assert environment["KUBERNETES_GVISOR_CLASS"] == "gvisor"
    assert {"PodDisruptionBudget", "ResourceQuota", "PriorityClass", "NetworkPolicy"} <= {
        each["kind"] for each in applied
    }


@pytest.mark.parametrize(
    ("file", "namespace", "allowed"),
    [
        (
            "rights.yaml",
            "sandyard-sandboxes",
            {
                ("pods", "secrets"): "create get list watch patch delete",
                ("persistentvolumeclaims",): "create get list patch delete",
            },
        ),
        (
            "root.yaml",
            "sandyard-root-sandboxes",
            {
                ("pods",): "create get list watch patch delete",
                ("secrets",): "create get delete",
            },
        ),
        ("egress.yaml", "sandyard-sandboxes", {("pods",): "get list watch"}),
    ],
)
def test_rights_are_for_objects_of_one_namespace_alone(
    file: str, namespace: str, allowed: dict[tuple[str, ...], str]
) -> None:
    rights = loaded(DEPLOY / "kubernetes" / "sandboxes" / file)
    assert "ClusterRole" not in {each["kind"] for each in rights}
    role, *others = [each for each in rights if each["kind"] == "Role"]
    assert {each["metadata"]["namespace"] for each in (role, *others)} == {namespace}
    assert [each["rules"][0]["verbs"] for each in others] in ([], [["get", "list", "watch"]])
    found = {tuple(each["resources"]): " ".join(each["verbs"]) for each in role["rules"]}
    assert found == allowed
    assert all(each["apiGroups"] == [""] for each in role["rules"])


@pytest.mark.parametrize("file", ["policies.yaml", "root.yaml"])
def test_a_sandbox_reaches_the_egress_proxy_alone_and_the_server_alone_reaches_it(
    file: str,
) -> None:
    applied = loaded(DEPLOY / "kubernetes" / "sandboxes" / file)
    [policy] = [each for each in applied if each["kind"] == "NetworkPolicy"]
    spec = policy["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress", "Egress"])
    peers = {}
    for direction, side in (("ingress", "from"), ("egress", "to")):
        [rule] = spec[direction]
        [peer] = rule[side]
        [port] = rule["ports"]
        peers[peer["podSelector"]["matchLabels"]["app"]] = (port["protocol"], port["port"])
    assert peers == {"sandyard": ("TCP", PORT), "egress-proxy": ("TCP", 3128)}


def test_pods_have_no_rights_and_are_probed() -> None:
    [deployment] = loaded(DEPLOY / "kubernetes" / "base" / "deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_unit_starts_the_program_under_a_user_of_its_own() -> None:
    text = (DEPLOY / "systemd" / "sandyard.service").read_text()
    hardened = ("DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes")
    for line in (*hardened, "KillMode=process"):
        assert line in text.splitlines()


def test_systemd_understands_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    """With a program that is there in place of ours. The threshold is in tenths of its scale, on
    which 10 is a service without any limits."""
    text = (DEPLOY / "systemd" / "sandyard.service").read_text()
    unit = tmp_path / "sandyard.service"
    unit.write_text(text.replace("/opt/sandyard/bin/sandyard", "/bin/true"))
    run("systemd-analyze", "verify", unit)
    run("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)


def _of_one_server() -> str:
    page = (ROOT / "docs" / "deploy.md").read_text()
    return page.partition("    # nginx, ")[2].partition("\n")[2].partition("\n\n")[0]


def _of_replicas() -> str:
    return (DEPLOY / "nginx" / "replicas.conf").read_text()


@pytest.mark.parametrize("configuration", [_of_one_server, _of_replicas])
def test_nginx_takes_the_configuration(tmp_path: Path, configuration: Callable[[], str]) -> None:
    made = make_certificate(tmp_path, "DNS:lab.example.com")
    server = configuration()
    for name, there in (("/etc/ssl/lab.pem", made.file), ("/etc/ssl/lab.key", made.key)):
        assert name in server
        server = server.replace(name, str(there))
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid; events {{}} http {{ access_log off;\n{server}\n}}")
    run("/usr/sbin/nginx", "-t", "-e", "stderr", "-c", file)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("pyproject.toml", 'version = "{}"'),
        ("clients/python/pyproject.toml", 'version = "{}"'),
        ("clients/typescript/package.json", '"version": "{npm}"'),
        ("clients/typescript/package-lock.json", '"version": "{npm}"'),
        ("uv.lock", 'name = "sandyard"\nversion = "{}"'),
        ("uv.lock", 'name = "sandyard-client"\nversion = "{}"'),
        ("deploy/kubernetes/base/deployment.yaml", "image: sandyard:v{}"),
        ("deploy/kubernetes/sandboxes/egress.yaml", "image: sandyard:v{}"),
        ("deploy/kubernetes/sandboxes/server.yaml", 'value: "sandyard:v{}"'),
        ("deploy/aws/config.py", 'image_tag: str = "v{}"'),
    ],
)
def test_the_version_is_the_same_everywhere(file: str, line: str) -> None:
    npm = __version__.replace(".dev", "-dev.")
    assert line.format(__version__, npm=npm) in (ROOT / file).read_text()


@pytest.mark.parametrize("name", ["test", "release"])
def test_a_workflow_has_jobs_with_a_bound_on_their_rights(name: str) -> None:
    [workflow] = loaded(ROOT / ".github" / "workflows" / f"{name}.yml")
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert all("uses" in step or "run" in step for step in job.get("steps", ()))


def test_nothing_is_built_that_was_not_tested() -> None:
    [release] = loaded(ROOT / ".github" / "workflows" / "release.yml")
    [tests] = loaded(ROOT / ".github" / "workflows" / "test.yml")
    jobs = release["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in tests[True], "`on`, which is true in YAML"
    assert jobs["build"]["needs"] == "test"
    steps = [step.get("run", "") for step in jobs["build"]["steps"]]
    [tried] = [number for number, step in enumerate(steps) if "make test-image" in step]
    [pushed] = [number for number, step in enumerate(steps) if "docker push" in step]
    assert tried < pushed
    assert jobs["staging"]["needs"] == "build"
    assert set(jobs["production"]["needs"]) == {"build", "staging"}


def test_notes_of_a_release_come_from_the_changelog() -> None:
    assert "The Broker" in run(sys.executable, DEPLOY / "release_notes.py", "0.1.0")
    assert "Upgrading from 0.2.0" in run(sys.executable, DEPLOY / "release_notes.py", "0.3.0")
    missing = [sys.executable, str(DEPLOY / "release_notes.py"), "9.9.9"]
    assert subprocess.run(missing, capture_output=True, timeout=20, check=False).returncode == 1


def test_a_deployment_is_tried_as_a_track_would(tmp_path: Path) -> None:
    """Also by the load balancer's name, with the token that its secret has in front."""
    aws = with_aws(tmp_path) | {"ALB_DNS_NAME": "127.0.0.1", "BROKER_TOKEN_SECRET": "tokens"}
    with sandyard_serve(tmp_path / "data") as server:
        own = os.environ | {"BROKER_API_TOKEN": server.track_token}
        said = run(DEPLOY / "smoke.sh", "try", server.url, env=own)
        assert '"status":"pending_deletion"' in said
        url = server.url.replace("127.0.0.1", "labs.invalid")
        token = {"TOKENS": f"{server.track_token},the-one-before"}
        said = run(DEPLOY / "smoke.sh", "try", url, env=os.environ | aws | token)
        assert '"status":"pending_deletion"' in said


AWS = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
*get-secret-value*tokens*) echo "$TOKENS" ;;
*describe-task-definition*) cat "$TASK" ;;
*deploymentController*) echo ECS ;;
*register-task-definition*) cp task.json "$REGISTERED"; echo new-arn ;;
*services*taskDefinition*) [ -f "$REGISTERED" ] && echo new-arn || echo old-arn ;;
esac
"""
"""A stand-in for AWS's command line: what is asked of it, and which task it is given."""


def with_aws(folder: Path) -> dict[str, str]:
    """The environment in which `aws` is that stand-in."""
    program = folder / "aws"
    program.write_text(AWS)
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(folder / "calls")}


@pytest.mark.parametrize(
    ("arguments", "image"), [(["deploy", "new:2"], "new:2"), (["back", "old-arn"], "old:1")]
)
def test_a_service_is_given_an_image_and_its_task_definition_back(
    tmp_path: Path, arguments: list[str], image: str
) -> None:
    task = {"containerDefinitions": [{"name": "sandyard", "image": "old:1"}], "revision": 7}
    (tmp_path / "task").write_text(json.dumps(task))
    environment = with_aws(tmp_path) | {
        "TASK": str(tmp_path / "task"),
        "REGISTERED": str(tmp_path / "registered"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "ECS_CLUSTER_NAME": "cluster",
        "ECS_SERVICE_NAME": "service",
    }
    subprocess.run(
        [DEPLOY / "smoke.sh", *arguments], cwd=tmp_path, env=environment, timeout=60, check=True
    )
    registered = json.loads((tmp_path / "registered").read_text())
    assert registered == {"containerDefinitions": [{"name": "sandyard", "image": image}]}
    assert "--task-definition new-arn" in (tmp_path / "calls").read_text()
    if arguments[0] == "deploy":
        assert (tmp_path / "output").read_text() == "previous=old-arn\n"


def test_what_does_not_pass_its_smoke_test_is_taken_back() -> None:
    [workflow] = loaded(ROOT / ".github" / "workflows" / "release.yml")
    for name in ("staging", "production"):
        *_, tried, back = workflow["jobs"][name]["steps"]
        assert "smoke.sh try" in tried["run"]
        assert back["if"].startswith("failure()")
        assert "smoke.sh back" in back["run"]


def test_make_install_names_every_extra_that_can_be_chosen() -> None:
    """`parquet` is always installed; `e2b` is empty."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.search(r"^install:.*\(EXTRAS=(.*)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    wanted = {name for name, packages in extras["optional-dependencies"].items() if packages}
    assert set(found[1].split(",")) == wanted - {"parquet"}
