"""The pull of an image of 300 MB and its first start, beside a plain download and `tar`."""

import gzip
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks.report import Figure, Measured, Say
from sandyard.runtime.local.gvisor.runsc import runsc
from tests.support.runtime.images import BUSYBOX
from tests.support.runtime.root_file_systems import image_config, member, tar
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import Person, signed_up, until
from tests.support.services.registry import Registry, running_registry

_LAYERS, _FILES, _FILE_BYTES = 3, 100, 1 << 20
_MEGABYTES = _LAYERS * _FILES
_MOST_TIMES = 3
_START_SEC = 3.0


def measure(folder: Path, say: Say) -> Measured:
    """Half of each file is random, as in programs that are compressed already."""
    with running_registry(folder / "registry") as registry:
        say(f"images: {_MEGABYTES} MB are pushed")
        layers = [_layer(number) for number in range(_LAYERS)]
        config = image_config(
            Cmd=["/busybox", "httpd", "-f", "-p", "80", "-h", "/data"], ExposedPorts={"80/tcp": {}}
        )
        registry.push("large:1", *layers, config=config)
        with sandyard_serve(
            folder / "data", environment={"IMAGE_REGISTRIES": f"http://{registry.host}"}
        ) as server:
            person = signed_up(server, "ann", mail=1)
            say("images: pull")
            pulled, image = _timed(lambda: _pull(person, registry))
            say("images: starts")
            first, _ = _timed(lambda: _start(person, image, "first"))
            second, _ = _timed(lambda: _start(person, image, "second"))
            own_kernel = None if runsc() is None else _with_own_kernel(person, image)
        say("images: plain download and tar")
        plain, _ = _timed(lambda: _plain(registry, layers, folder / "plain"))
    label = f"pull of {_MEGABYTES} MB ÷ download and tar ({_MEGABYTES / pulled:.0f} MB/s)"
    return Measured(
        [
            Figure.at_most(label, pulled / plain, _MOST_TIMES),
            Figure("  pull until it is ready", f"{pulled:.1f} s"),
            Figure.below("  first start of its program", first, _START_SEC, "s"),
            Figure("  second start", f"{second:.2f} s"),
            Figure("  a start with gVisor", "-" if own_kernel is None else f"{own_kernel:.2f} s"),
        ],
        rows=f"{_MEGABYTES} MB",
    )


def _layer(number: int) -> bytes:
    half = _FILE_BYTES // 2
    files = [
        member(f"data/{number}/{each}", os.urandom(half) + bytes(half)) for each in range(_FILES)
    ]
    return gzip.compress(tar(member("busybox", BUSYBOX.read_bytes()), *files), compresslevel=1)


def _pull(person: Person, registry: Registry) -> Any:
    body = {"reference": f"{registry.host}/large:1"}
    path = f"/images/{person.call('POST', '/images', body, expect=202)['image_id']}"
    image = until(lambda: (found := person.call("GET", path))["status"] != "pulling" and found)
    if image["status"] != "ready":
        raise RuntimeError(image["reason"])
    return image


def _with_own_kernel(person: Person, image: Any) -> float:
    return _timed(lambda: _start(person, image, "with a kernel", isolation="gvisor"))[0]


def _start(person: Person, image: Any, name: str, **more: str) -> None:
    body = {"name": name, "category": "web", "language": "any", "image": image["image_id"], **more}
    template = person.call("POST", "/templates", body, expect=201)
    wanted = {
        "name": name,
        "template_id": template["template_id"],
        "cpu_spec": 1,
        "memory_spec": 1,
        "max_running_seconds": 600,
    }
    made = person.call("POST", "/sandboxes", wanted, expect=201)
    person.call("POST", f"/sandboxes/{made['sandbox_id']}/start")


def _plain(registry: Registry, layers: list[bytes], to: Path) -> None:
    to.mkdir()
    manifest = httpx.get(
        f"http://{registry.host}/v2/large/manifests/1",
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"},
    ).json()
    for layer in manifest["layers"][: len(layers)]:
        url = f"http://{registry.host}/v2/large/blobs/{layer['digest']}"
        subprocess.run(["curl", "-sfo", str(to / "layer"), url], check=True)
        subprocess.run(["tar", "-xzf", str(to / "layer"), "-C", str(to)], check=True)
    subprocess.run(["sync", "-f", str(to)], check=True)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun_at = time.perf_counter()
    made = work()
    return time.perf_counter() - begun_at, made
