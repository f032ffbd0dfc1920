"""`python -m tests.support.commands.in_cluster PYTEST-ARGUMENT…`: run tests in a cluster, that of
KUBECONFIG.

It applies what the tests need (a namespace, an account, a Role: `deploy/kubernetes/sandboxes`),
gives them a token of that account, and deletes the namespace afterwards.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes.cluster import URL

NAMESPACE = "sandyard-tests"
_SANDBOXES = Path(__file__).parents[3] / "deploy" / "kubernetes" / "sandboxes"
_FILES = ("namespace.yaml", "rights.yaml")
_HOURS = 4
SUITES = ("tests/contract/runtime", "tests/contract/previews/test_providers.py")


def manifests() -> Iterator[dict[str, Any]]:
    """Those of the deployment, all in one namespace, with the server's account in it too."""
    for file in _FILES:
        text = (_SANDBOXES / file).read_text().replace("sandyard-sandboxes", NAMESPACE)
        yield from yaml.safe_load_all(
            text.replace("namespace: sandyard}", f"namespace: {NAMESPACE}}}")
        )


def kubectl(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(
        ["kubectl", *arguments], input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    [named] = config["clusters"]
    server = named["cluster"]
    documents = yaml.safe_dump_all(list(manifests()))
    kubectl("apply", "-f", "-", given=documents)
    try:
        with tempfile.TemporaryDirectory() as folder:
            token, authority = Path(folder) / "token", Path(folder) / "ca.crt"
            words = ("create", "token", "sandyard", "-n", NAMESPACE, f"--duration={_HOURS}h")
            token.write_text(kubectl(*words))
            os.environ |= {URL: server["server"], "KUBERNETES_TOKEN_FILE": str(token)}
            if encoded := server.get("certificate-authority-data"):
                authority.write_bytes(base64.b64decode(encoded))
                os.environ["KUBERNETES_CA_FILE"] = str(authority)
            os.environ["KUBERNETES_NAMESPACE"] = NAMESPACE
            mine = ["-m", "torture or not torture", "-k", "kubernetes", *(arguments or SUITES)]
            return int(pytest.main(mine))
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--wait=false")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
