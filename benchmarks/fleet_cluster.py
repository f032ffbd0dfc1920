"""`python -m benchmarks.fleet_cluster`: the API server of a cluster of any size, for measurements.

It stores what it is sent and checks nothing. A Pod runs at once, in no process: its agent is a
responder at an address of its own, with the key of its run. What is `filled` has no agent. It does
not end before its input does.
"""

import asyncio
import base64
import json
import ssl
import sys
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web

from sandyard.runtime.kubernetes import manifest
from sandyard.runtime.model import Limits, RunId, Running
from sandyard.runtime.records.recorded_run import begun_record, running_record
from sandyard.runtime.remote.envd import PORT

NODES = 1000
_KINDS = ("pods", "secrets")
_LIMITS = Limits(
    cpu=1, memory_bytes=1 << 30, processes=256, storage_bytes=1 << 30, max_running_sec=3600
)
_KEY_BYTES, _CERTIFICATE_BYTES, _TOKEN_BYTES = 241, 570, 43
_STATUS_WRITES = 3
"""Of a kubelet, until a Pod runs; the scheduler writes once more."""
Object = dict[str, Any]


class Fleet:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects: dict[str, dict[str, bytes]] = {kind: {} for kind in _KINDS}
        self._events: dict[str, list[tuple[int, bytes]]] = {kind: [] for kind in _KINDS}
        self._sent: list[str] = []
        self._versions = count(1)
        self._version = 0
        self._addresses = count(1)
        self._changed = asyncio.Event()
        self._agents: dict[str, web.TCPSite] = {}
        agent = web.Application()
        agent.add_routes(
            [web.get("/machine", _state), web.post("/machine/guest/{operation}", _operation)]
        )
        agent.add_routes([web.get("/machine/program", _program)])
        agent.add_routes([web.post("/machine/{verb}", _obey), web.route("*", "/{rest:.*}", _none)])
        self._agent = web.AppRunner(agent, access_log=None)

    async def serve(self) -> int:
        """Returns the port."""
        await self._agent.setup()
        base = "/api/v1/namespaces/{namespace}/{kind}"
        app = web.Application()
        app.add_routes(
            [
                web.get(base, self._list),
                web.post(base, self._create),
                web.get(base + "/{name}", self._get),
                web.patch(base + "/{name}", self._patch),
                web.delete(base + "/{name}", self._delete),
                web.post("/fill", self._fill),
                web.post("/change", self._change),
                web.post("/end", self._end),
                web.get("/sent", self._report),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    def _write(self, kind: str, found: Object, event: str) -> bytes:
        self._version = next(self._versions)
        found["metadata"]["resourceVersion"] = str(self._version)
        name, encoded = found["metadata"]["name"], json.dumps(found).encode()
        if event == "DELETED":
            self._objects[kind].pop(name, None)
        else:
            self._objects[kind][name] = encoded
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), encoded)
        self._events[kind].append((self._version, line))
        self._changed.set()
        self._changed = asyncio.Event()
        return encoded

    def _put(self, kind: str, found: Object, number: int) -> None:
        """Without an event: it was there before."""
        self._version = next(self._versions)
        found["metadata"] |= _server_side(number) | {"resourceVersion": str(self._version)}
        self._objects[kind][found["metadata"]["name"]] = json.dumps(found).encode()

    async def _fill(self, request: web.Request) -> web.Response:
        for number in range(int(request.query["runs"])):
            run_id = _run_id(number)
            self._put("secrets", manifest.secret(run_id, _records(run_id)), number)
            pod = _pod(run_id, number)
            self._put("pods", pod | {"status": _running(number, f"10.{number >> 16}.0.1")}, number)
        return web.Response()

    async def _change(self, request: web.Request) -> web.Response:
        """So many changes of Pods, one after the other, as fast as they are sent."""
        names, found = list(self._objects["pods"]), {}
        for number in range(int(request.query["changes"])):
            found = json.loads(self._objects["pods"][names[number % len(names)]])
            self._write("pods", found, "MODIFIED")
            if number % 100 == 0:
                await asyncio.sleep(0)
        last = {"name": found["metadata"]["name"], "version": str(self._version)}
        return web.json_response(last)

    async def _end(self, request: web.Request) -> web.Response:
        """So many of those that were there before have ended."""
        terminated = {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:03Z"}
        status = {"name": manifest.CONTAINER, "state": {"terminated": terminated}}
        for number in range(int(request.query["begin"]), int(request.query["end"])):
            name = manifest.name_of(_run_id(number))
            pod = json.loads(self._objects["pods"][name])
            pod["status"] |= {"phase": "Failed", "containerStatuses": [status]}
            self._write("pods", pod, "MODIFIED")
        return web.Response()

    async def _report(self, _request: web.Request) -> web.Response:
        sent, self._sent = self._sent, []
        return web.json_response(sent)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        kind, query = request.match_info["kind"], request.query
        if "watch" in query:
            return await self._watch(request)
        self._sent.append(f"GET {kind}")
        found = list(self._objects[kind].values())
        begin, limit = int(query.get("continue") or 0), int(query["limit"])
        end = str(begin + limit) if begin + limit < len(found) else ""
        metadata = json.dumps({"resourceVersion": str(self._version), "continue": end}).encode()
        items = b",".join(found[begin : begin + limit])
        body = b'{"metadata":%s,"items":[%s]}' % (metadata, items)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        kind, version = request.match_info["kind"], int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        at = sum(1 for known, _ in self._events[kind] if known <= version)
        while True:
            changed, events = self._changed, self._events[kind]
            if at == len(events):
                await changed.wait()
                continue
            lines, at = events[at : at + 500], min(len(events), at + 500)
            try:
                await response.write(b"".join(line for _, line in lines))
            except ConnectionError:
                return response

    async def _create(self, request: web.Request) -> web.Response:
        kind, found = request.match_info["kind"], await request.json()
        self._sent.append(f"POST {kind}")
        if found["metadata"]["name"] in self._objects[kind]:
            return web.json_response({"message": "already exists"}, status=409)
        number = next(self._addresses)
        found["metadata"] |= _server_side(number)
        encoded = self._write(kind, found, "ADDED")
        if kind == "pods":
            await self._run(json.loads(encoded), number)
        return web.Response(body=encoded, status=201, content_type="application/json")

    async def _run(self, pod: Object, number: int) -> None:
        name, address = (
            pod["metadata"]["name"],
            f"127.9{number >> 16}.{number >> 8 & 255}.{number & 255}",
        )
        secret = json.loads(self._objects["secrets"][name])["data"]
        file = self._folder / "key.pem"
        file.write_bytes(base64.b64decode(secret["certificate"]) + base64.b64decode(secret["key"]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        self._agents[name] = web.TCPSite(self._agent, address, PORT, ssl_context=context)
        await self._agents[name].start()
        pod["spec"]["nodeName"] = f"node-{number % NODES}"
        for _ in range(_STATUS_WRITES):
            self._write("pods", pod | {"status": {"phase": "Pending"}}, "MODIFIED")
        self._write("pods", pod | {"status": _running(number, address)}, "MODIFIED")

    async def _get(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        self._sent.append(f"GET one of {kind}")
        found = self._objects[kind].get(request.match_info["name"])
        if found is None:
            return web.json_response({}, status=404)
        return web.Response(body=found, content_type="application/json")

    async def _patch(self, request: web.Request) -> web.Response:
        kind, patch = request.match_info["kind"], json.loads(await request.read())
        self._sent.append(f"PATCH {kind}")
        if (encoded := self._objects[kind].get(request.match_info["name"])) is None:
            return web.json_response({}, status=404)
        found = json.loads(encoded)
        version = patch.get("metadata", {}).pop("resourceVersion", None)
        if version not in (None, found["metadata"]["resourceVersion"]):
            return web.json_response({"message": "modified"}, status=409)
        data = {**found.get("data", {}), **patch.get("data", {})}
        found["data"] = {key: value for key, value in data.items() if value is not None}
        body = self._write(kind, found, "MODIFIED")
        return web.Response(body=body, content_type="application/json")

    async def _delete(self, request: web.Request) -> web.Response:
        kind, name = request.match_info["kind"], request.match_info["name"]
        self._sent.append(f"DELETE {kind}")
        if (encoded := self._objects[kind].get(name)) is not None:
            self._write(kind, json.loads(encoded), "DELETED")
            if kind == "pods" and name in self._agents:
                await self._agents.pop(name).stop()
        return web.json_response({})


def _run_id(number: int) -> RunId:
    return RunId("sandbox", f"sbx-{number:012d}", "1")


async def _state(_request: web.Request) -> web.Response:
    return web.json_response({"deadline_at": 1e10, "cpu_seconds": 1, "memory_bytes": 1 << 20})


async def _program(_request: web.Request) -> web.Response:
    return web.json_response(None)


async def _operation(_request: web.Request) -> web.Response:
    return web.Response(text='{"result": null}\n')


async def _obey(_request: web.Request) -> web.Response:
    return web.json_response({})


async def _none(_request: web.Request) -> web.Response:
    """envd's files: no program was ever started here."""
    return web.json_response({"code": 404, "message": "no such file"}, status=404)


def _server_side(number: int) -> Object:
    return {
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "namespace": "sandboxes",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }


def _records(run_id: RunId) -> Mapping[str, str]:
    """As large as those of a run are, in base64."""
    machine = {"created_at": 1e9, "deadline_at": 4e9, "network": "full"}
    running = running_record(Running(run_id, 8080, 1e9, 4e9))
    plain = {
        "token": b"t" * _TOKEN_BYTES,
        "certificate": b"c" * _CERTIFICATE_BYTES,
        "key": b"k" * _KEY_BYTES,
        "proxy": b"p" * 80,
        "machine": json.dumps(machine).encode(),
        "begun": json.dumps(begun_record(_LIMITS, 1e9)).encode(),
        "launched": b'{"at": 1000000000.0}',
        "running": json.dumps(running).encode(),
    }
    return {name: base64.b64encode(each).decode() for name, each in plain.items()}


def _pod(run_id: RunId, number: int) -> Object:
    options = manifest.PodOptions("sandyard:agent", manifest.PodImage("debian:bookworm"))
    found = manifest.pod(
        run_id,
        _LIMITS,
        options,
        image=options.image,
        isolation=None,
        egress={"digest": "d" * 64, "network": "full", "rules": []},
        deadline_at=4e9,
        creation="c" * 16,
    )
    found["spec"]["nodeName"] = f"node-{number % NODES}"
    return found


def _running(number: int, address: str) -> Object:
    """What a kubelet writes, without the names of the managers of its fields."""
    started, node = "2026-01-01T00:00:02Z", f"192.168.{number % NODES >> 8}.{number % NODES & 255}"
    conditions = (
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    )
    return {
        "phase": "Running",
        "podIP": address,
        "hostIP": node,
        "startTime": started,
        "qosClass": "Guaranteed",
        "conditions": [
            {"type": each, "status": "True", "lastTransitionTime": started} for each in conditions
        ],
        "containerStatuses": [
            {
                "name": manifest.CONTAINER,
                "image": "debian:bookworm",
                "imageID": f"docker.io/library/debian@sha256:{'0' * 64}",
                "containerID": f"containerd://{number:064d}",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }
        ],
    }


async def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(await Fleet(Path(folder)).serve(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main())
