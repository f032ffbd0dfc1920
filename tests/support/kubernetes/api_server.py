"""A small API server of Kubernetes, as strict as the real one in what the runtime relies on: names,
versions, UIDs, watches with bookmarks and 410, graceful deletion, admission of the restricted
profile, and conflicts. It knows Pods, Secrets and claims of volumes of two namespaces."""

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web

from tests.support.kubernetes.admission import (
    KINDS,
    NAMESPACE,
    ROOT_NAMESPACE,
    Object,
    RefusedError,
    admit,
    validate,
)

TOKEN = "the-token-of-the-service-account"
EGRESS_TOKEN = "the-token-of-the-egress-proxy"
"""It may read Pods, and nothing else."""
_BOOKMARK_SEC = 0.2


class ApiServer:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        """By name; in the second namespace, by that and the name."""
        self.is_away = False
        self.expands_volumes = True
        """Whether the StorageClass allows it."""
        self.calls: list[tuple[str, str]] = []
        self.refuses_next: Callable[[str, str], bool] = lambda _method, _kind: False
        """For a create whose response is lost: it is carried out, and then unanswered."""
        self._version = 100
        self._oldest = 100
        self._history: list[tuple[int, str, str, Object]] = []
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        app = web.Application(middlewares=[self._guarded], client_max_size=4 << 20)
        namespaces = f"{{namespace:{NAMESPACE}|{ROOT_NAMESPACE}}}"
        base = f"/api/v1/namespaces/{namespaces}/{{kind:{'|'.join(KINDS)}}}"
        app.add_routes(
            [
                web.get(base, self._list),
                web.post(base, self._create),
                web.get(f"{base}/{{name}}", self._get),
                web.patch(f"{base}/{{name}}", self._patch),
                web.delete(f"{base}/{{name}}", self._delete),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.is_away = True
        self._tell()
        assert self._runner is not None
        await self._runner.cleanup()

    def go_away(self) -> None:
        self.is_away = True
        self._tell()

    def come_back(self) -> None:
        self.is_away = False

    def compact(self) -> None:
        """Forget the history: watches that continue from there get 410."""
        self._oldest = self._version
        self._history.clear()

    def history(self) -> list[tuple[int, str, str, Object]]:
        """Version, kind, event and object of all changes since `compact`."""
        return list(self._history)

    def write(self, kind: str, found: Object, event: str = "MODIFIED") -> Object:
        """As a controller of the cluster does."""
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        name = key_of(found["metadata"]["namespace"], found["metadata"]["name"])
        if event == "DELETED":
            self.objects[kind].pop(name, None)
        else:
            self.objects[kind][name] = found
        self._history.append((self._version, kind, event, deepcopy(found)))
        self._tell()
        return found

    def set_status(self, name: str, **status: Any) -> None:
        if (found := self.objects["pods"].get(name)) is not None:
            self.write("pods", {**found, "status": {**found.get("status", {}), **status}})

    def remove_pod(self, name: str) -> None:
        """As when its kubelet has confirmed the deletion, or its node is gone."""
        if (found := self.objects["pods"].get(name)) is not None:
            self.write("pods", deepcopy(found), "DELETED")

    async def changes(self) -> None:
        await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.is_away:
            _abort(request)
            return web.Response(status=503)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, EGRESS_TOKEN):
            return _status(401, "Unauthorized", "Unauthorized")
        kind = request.match_info.get("kind", "")
        if token == EGRESS_TOKEN and (request.method, kind) != ("GET", "pods"):
            return _status(403, "Forbidden", f"the egress proxy cannot {request.method} {kind}")
        if "watch" not in request.query:
            self.calls.append((request.method, kind))
        try:
            response: web.StreamResponse = await handler(request)
        except RefusedError as error:
            return _status(error.status, error.reason, str(error))
        if self.refuses_next(request.method, kind):
            _abort(request)
        return response

    async def _create(self, request: web.Request) -> web.Response:
        kind, found = request.match_info["kind"], json.loads(await request.read())
        namespace = request.match_info["namespace"]
        found["metadata"].setdefault("namespace", namespace)
        validate(kind, found, namespace)
        name = found["metadata"]["name"]
        if key_of(namespace, name) in self.objects[kind]:
            raise RefusedError(409, "AlreadyExists", f'{kind} "{name}" already exists')
        found["metadata"] |= {
            "uid": str(uuid4()),
            "creationTimestamp": now(),
        }
        if kind == "pods":
            admit(found)
        if kind != "secrets":
            found["status"] = {"phase": "Pending"}
        return web.json_response(self.write(kind, found, "ADDED"), status=201)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._find(request))

    async def _patch(self, request: web.Request) -> web.Response:
        if request.content_type != "application/merge-patch+json":
            raise RefusedError(415, "UnsupportedMediaType", request.content_type)
        kind, patch = request.match_info["kind"], json.loads(await request.read())
        found = deepcopy(self._find(request))
        version = patch.get("metadata", {}).get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise RefusedError(409, "Conflict", "the object has been modified")
        merged = _merged(found, patch)
        if kind == "pods" and (merged["spec"], merged.get("status")) != (
            found["spec"],
            found.get("status"),
        ):
            raise RefusedError(422, "Invalid", "pod updates may not change fields of its spec")
        if kind == "persistentvolumeclaims":
            self._check_resize(found, merged)
        rest = {key: each for key, each in merged.items() if key != "status"}
        validate(kind, rest, request.match_info["namespace"])
        return web.json_response(self.write(kind, merged))

    async def _delete(self, request: web.Request) -> web.Response:
        kind, found = request.match_info["kind"], deepcopy(self._find(request))
        body = await request.read()
        options = json.loads(body) if body else {}
        uid = options.get("preconditions", {}).get("uid")
        if uid not in (None, found["metadata"]["uid"]):
            raise RefusedError(409, "Conflict", f"the UID in the precondition ({uid}) differs")
        ordered = found.get("spec", {}).get("terminationGracePeriodSeconds", 0)
        grace_sec = options.get("gracePeriodSeconds", ordered)
        if kind == "pods" and "nodeName" in found["spec"] and grace_sec:
            if "deletionTimestamp" not in found["metadata"]:
                found["metadata"] |= {
                    "deletionTimestamp": now(),
                    "deletionGracePeriodSeconds": grace_sec,
                }
                self.write(kind, found)
            return web.json_response(found)
        if kind == "persistentvolumeclaims" and self._is_used(found):
            found["metadata"] |= {"deletionTimestamp": now()}
            return web.json_response(self.write(kind, found))
        return web.json_response(self.write(kind, found, "DELETED"))

    def _check_resize(self, found: Object, merged: Object) -> None:
        """As `pvc-protection` and the expansion of volumes do."""
        specs = (found["spec"], merged["spec"])
        size, wanted = (each["resources"]["requests"]["storage"] for each in specs)
        rest = {**merged["spec"], "resources": found["spec"]["resources"]}
        if rest != found["spec"] or int(wanted) < int(size):
            raise RefusedError(422, "Invalid", "spec is immutable, and may not be less than before")
        if size != wanted and not self.expands_volumes:
            name = found["metadata"]["name"]
            message = f'persistentvolumeclaims "{name}" is forbidden: its class can not be resized'
            raise RefusedError(403, "Forbidden", message)

    def _is_used(self, claim: Object) -> bool:
        return any(
            claim["metadata"]["name"] in claims_of(pod)
            for pod in self.objects["pods"].values()
            if pod["status"]["phase"] not in ("Succeeded", "Failed")
        )

    def delete_unused_claims(self) -> None:
        """As the controller that protects claims does."""
        for found in list(self.objects["persistentvolumeclaims"].values()):
            if "deletionTimestamp" in found["metadata"] and not self._is_used(found):
                self.write("persistentvolumeclaims", deepcopy(found), "DELETED")

    async def _list(self, request: web.Request) -> web.StreamResponse:
        kind, query = request.match_info["kind"], request.query
        unknown = set(query) - {
            *("labelSelector", "limit", "continue", "watch", "allowWatchBookmarks"),
            *("resourceVersion", "timeoutSeconds"),
        }
        if unknown:
            raise RefusedError(400, "BadRequest", f"unknown parameters {unknown}")
        if query.get("watch") == "true":
            return await self._watch(request)
        in_namespace = request.match_info["namespace"]
        names = sorted(self._selected(in_namespace, kind, query.get("labelSelector", "")))
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(names)
        metadata = {"resourceVersion": str(self._version)}
        if begin + limit < len(names):
            metadata["continue"] = str(begin + limit)
        items = [self.objects[kind][name] for name in names[begin : begin + limit]]
        return web.json_response({"kind": "List", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        kind, query = request.match_info["kind"], request.query
        in_namespace = request.match_info["namespace"]
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        at, loop = int(query["resourceVersion"]), asyncio.get_running_loop()
        until = loop.time() + float(query.get("timeoutSeconds", "300"))
        while loop.time() < until:
            if self.is_away:
                _abort(request)
                break
            if at < self._oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                await _send(response, "ERROR", gone)
                break
            for version, of_kind, event, found in list(self._history):
                if version <= at or (of_kind, found["metadata"]["namespace"]) != (
                    kind,
                    in_namespace,
                ):
                    continue
                if _matches(found, query["labelSelector"]):
                    await _send(response, event, found)
            at = self._version
            changed = asyncio.ensure_future(self.changes())
            done, _ = await asyncio.wait({changed}, timeout=_BOOKMARK_SEC)
            if not done:
                changed.cancel()
                bookmark = {"kind": KINDS[kind], "metadata": {"resourceVersion": str(at)}}
                await _send(response, "BOOKMARK", bookmark)
        return response

    def _find(self, request: web.Request) -> Object:
        kind, name = request.match_info["kind"], request.match_info["name"]
        key = key_of(request.match_info["namespace"], name)
        if (found := self.objects[kind].get(key)) is None:
            raise RefusedError(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def _selected(self, namespace: str, kind: str, selector: str) -> Iterator[str]:
        for name, found in self.objects[kind].items():
            if found["metadata"]["namespace"] == namespace and _matches(found, selector):
                yield name


def key_of(namespace: str, name: str) -> str:
    return name if namespace == NAMESPACE else f"{namespace}/{name}"


def claims_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """The names of its volumes, by those of their claims."""
    return {
        source["claimName"]: each["name"]
        for each in pod["spec"].get("volumes", ())
        if (source := each.get("persistentVolumeClaim"))
    }


async def _send(response: web.StreamResponse, event: str, found: Object) -> None:
    with suppress(ConnectionError):
        await response.write(json.dumps({"type": event, "object": found}).encode() + b"\n")


def _abort(request: web.Request) -> None:
    if isinstance(request.transport, asyncio.Transport):  # its client may be gone
        request.transport.abort()


def _matches(found: Object, selector: str) -> bool:
    wanted = dict(each.split("=") for each in selector.split(",") if each)
    labels: dict[str, str] = found["metadata"].get("labels", {})
    return wanted.items() <= labels.items()


def _merged(found: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(found) if isinstance(found, dict) else {}
    for key, each in patch.items():
        if each is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), each)
    return merged


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
