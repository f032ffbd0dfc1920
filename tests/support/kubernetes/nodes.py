"""The nodes of a cluster that is not one: each Pod is real processes in namespaces of their own,
at an address of its own, and nothing but what its manifest mounts and the image has."""

import asyncio
import base64
import json
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from tests.support.e2b.network import join
from tests.support.kubernetes.api_server import ApiServer, claims_of, key_of, now
from tests.support.kubernetes.placement import allowed, is_attached_elsewhere
from tests.support.kubernetes.pod_sockets import PodSockets
from tests.support.kubernetes.probes import keep_probing

AGENT_IMAGE, DEBIAN, DISTROLESS = "sandyard:test", "debian", "distroless"
_LINKS = {"usr/bin": "/bin", "usr/sbin": "/sbin", "usr/lib": "/lib", "usr/lib64": "/lib64"}
_AGENT_PORT = 49983
_CHECK_SEC = 0.2
_POLICIES = Path(__file__).parents[3] / "deploy/kubernetes/sandboxes/policies.yaml"


@dataclass(slots=True)
class Node:
    name: str
    is_cut_off: bool = False
    """Its Pods run, but nobody reaches them, and its kubelet reaches no API server."""


@dataclass(slots=True)
class RunningPod:
    name: str
    node: Node
    folder: Path
    address: str
    process: Process | None = None
    agent_pid: int = 0
    probing: asyncio.Task[None] | None = None
    sockets: PodSockets | None = None
    servers: list[asyncio.Server] = field(default_factory=list)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    end: Mapping[str, Any] | None = None
    """How it was killed, if that was done from here."""


class Nodes:
    """Kubelets and the scheduler."""

    def __init__(
        self, api: ApiServer, agent: Path, names: Sequence[str], *, has_networks: bool = True
    ) -> None:
        """Without networks a single Pod can run, at an address of this machine: then no relay of
        ours is in its way, which is for measuring."""
        self._has_networks = has_networks
        self.nodes = {name: Node(name) for name in names}
        self.pods: dict[str, RunningPod] = {}
        """By UID."""
        self.has_room = True
        self.services: dict[str, tuple[str, int]] = {}
        """By the label `app` of their Pods: what a NetworkPolicy may let Pods reach."""
        self._disks = Path(mkdtemp(prefix="volumes-"))
        """With a folder for each claim's UID."""
        self._api = api
        self._agent = agent
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for pod in list(self.pods.values()):
            await self._kill(pod)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._disks)

    def pod(self, name: str) -> RunningPod:
        return next(each for each in self.pods.values() if each.name == name)

    def count_running(self) -> int:
        running = (each.process for each in self.pods.values())
        return sum(process is not None and process.returncode is None for process in running)

    def cut_off(self, node: str) -> None:
        self.nodes[node].is_cut_off = True
        for pod in self.pods.values():
            if pod.node.name == node:
                for writer in list(pod.writers):
                    writer.transport.abort()
        for pod in self.pods.values():
            if pod.node.name == node:
                condition = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
                condition["lastTransitionTime"] = now()
                self._api.set_status(pod.name, conditions=[condition])

    def connect(self, node: str) -> None:
        self.nodes[node].is_cut_off = False

    async def remove(self, node: str) -> None:
        """The machine is switched off, and its node deleted: then its Pods are too."""
        gone = self.nodes.pop(node)
        for pod in [each for each in self.pods.values() if each.node is gone]:
            await self._kill(pod)
            self._api.remove_pod(pod.name)

    async def kill(self, name: str, *, reason: str = "Error", code: int = 137) -> None:
        """As the kernel does, with the container's first process."""
        pod = self.pod(name)
        pod.end = {"reason": reason, "exitCode": code}
        await self._kill(pod)

    async def evict(self, name: str, message: str) -> None:
        pod = self.pod(name)
        pod.end = {"reason": "Error", "exitCode": 137, "evicted": message}
        await self._kill(pod)

    async def _watch(self) -> None:
        while True:
            for name, manifest in list(self._api.objects["pods"].items()):
                uid = manifest["metadata"]["uid"]
                if uid not in self._known:
                    self._place(uid, name, manifest)
                pod = self.pods.get(uid)
                if "deletionTimestamp" in manifest["metadata"] and not self._is_cut_off(pod):
                    self._begin(self._end_deleted(uid, name), f"end {uid}")
            there = {each["metadata"]["uid"] for each in self._api.objects["pods"].values()}
            for uid, pod in list(self.pods.items()):
                if uid not in there and not pod.node.is_cut_off:
                    self._begin(self._drop(uid), f"drop {uid}")
            self._api.delete_unused_claims()
            changed = asyncio.ensure_future(self._api.changes())
            await asyncio.wait({changed}, timeout=_CHECK_SEC)
            changed.cancel()

    def _begin(self, work: Any, name: str) -> None:
        if any(task.get_name() == name for task in self._tasks):
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_cut_off(self, pod: RunningPod | None) -> bool:
        return pod is not None and pod.node.is_cut_off

    def _place(self, uid: str, name: str, manifest: dict[str, Any]) -> None:
        """On the ready node with the fewest Pods, of those that its affinity allows."""
        fitting = allowed(manifest, self.nodes, self._api.objects["pods"].values())
        ready = [self.nodes[each] for each in sorted(fitting) if not self.nodes[each].is_cut_off]
        if not (ready and self.has_room):
            what = "insufficient memory" if fitting else "they do not fit its affinity"
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/3 nodes are available: {what}.",
            }
            if "conditions" not in manifest["status"]:
                self._api.set_status(name, conditions=[condition])
            return
        self._known.add(uid)
        used = [pod.node for pod in self.pods.values()]
        node = min(ready, key=used.count)
        self._count += 1
        own = f"127.88.{os.getpid() % 250}.{self._count % 250 + 1}"
        address = own if self._has_networks else "127.0.0.1"
        pod = RunningPod(name, node, Path(mkdtemp(prefix="pod-")), address)
        self.pods[uid] = pod
        placed = {**manifest, "spec": {**manifest["spec"], "nodeName": node.name}}
        self._api.write("pods", placed)
        self._begin(self._run(pod, placed), f"run {uid}")

    async def _run(self, pod: RunningPod, manifest: dict[str, Any]) -> None:
        spec = manifest["spec"]
        for volume in spec["volumes"]:
            if "emptyDir" in volume:
                (pod.folder / volume["name"]).mkdir(parents=True)
        for claim, name in claims_of(manifest).items():
            while is_attached_elsewhere(claim, pod.node.name, self._api.objects["pods"].values()):
                await asyncio.sleep(_CHECK_SEC)
            (pod.folder / name).symlink_to(self._disk(claim))
        inits = spec.get("initContainers", ())
        for container in (*inits, *spec["containers"]):
            if container["image"] not in (AGENT_IMAGE, DEBIAN, DISTROLESS):
                waiting = {"reason": "ImagePullBackOff", "message": "not found"}
                status = {"name": container["name"], "image": container["image"]}
                told = [{**status, "state": {"waiting": waiting}}]
                self._tell(pod, containerStatuses=told)
                return
        for container in inits:
            process = await asyncio.create_subprocess_exec(
                *self._inside(pod, spec, container), stdin=DEVNULL
            )
            assert await process.wait() == 0
        [container] = spec["containers"]
        log = pod.folder / "termination-log"
        log.touch()
        reader, writer = os.pipe()
        pod.process = await asyncio.create_subprocess_exec(
            *self._inside(pod, spec, container, info=writer),
            env=self._environment(container, manifest["metadata"]["namespace"]),
            stdin=DEVNULL,
            stdout=PIPE,
            pass_fds=[writer],
        )
        os.close(writer)
        assert pod.process.stdout is not None
        if await pod.process.stdout.readline() != b"ready\n":
            os.close(reader)
            await self._ended(pod, log)
            return
        with os.fdopen(reader, "rb") as info:
            pod.agent_pid = json.load(info)["child-pid"]
        await self._open_network(pod)
        status = {"name": container["name"], "state": {"running": {"startedAt": now()}}}
        self._tell(pod, phase="Running", podIP=pod.address, containerStatuses=[status])
        tell = partial(self._tell, pod)
        pod.probing = asyncio.create_task(keep_probing(pod.address, container, status, tell))
        await self._ended(pod, log)

    def _disk(self, name: str) -> Path:
        """Of the claim, which is bound when it is first used."""
        claim = self._api.objects["persistentvolumeclaims"][name]
        if claim["status"]["phase"] != "Bound":
            self._api.write("persistentvolumeclaims", {**claim, "status": {"phase": "Bound"}})
        disk = self._disks / str(claim["metadata"]["uid"])
        disk.mkdir(exist_ok=True)
        return disk

    def _inside(
        self,
        pod: RunningPod,
        spec: dict[str, Any],
        container: dict[str, Any],
        *,
        info: int | None = None,
    ) -> list[str]:
        user = str(spec["securityContext"]["runAsUser"])
        words = ["bwrap", "--die-with-parent", "--unshare-user", "--uid", user, "--gid", user]
        words += ["--unshare-net"] if self._has_networks else []
        words += ["--unshare-pid", "--as-pid-1", "--unshare-ipc"]
        if container["image"] != DISTROLESS:
            words += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
            for far, near in _LINKS.items():
                words += ["--symlink", far, near]
        words += ["--proc", "/proc", "--dev", "/dev"]
        if container["image"] == AGENT_IMAGE:
            words += ["--ro-bind", str(self._agent), "/opt/sandyard/agent"]
        for mount in container["volumeMounts"]:
            source = pod.folder / mount["name"] / mount.get("subPath", "")
            if not source.exists():
                source.mkdir()
            bind = "--ro-bind" if mount.get("readOnly") else "--bind"
            words += [bind, str(source), mount["mountPath"]]
        if info is not None:
            log = pod.folder / "termination-log"
            words += ["--bind", str(log), "/dev/termination-log", "--info-fd", str(info)]
        if container.get("securityContext", {}).get("readOnlyRootFilesystem"):
            words += ["--remount-ro", "/"]
        words += ["--chdir", container.get("workingDir", "/")]
        return [*words, *container["command"]]

    def _environment(self, container: dict[str, Any], namespace: str) -> dict[str, str]:
        found = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        for each in container.get("env", ()):
            if "value" in each:
                found[each["name"]] = each["value"]
                continue
            reference = each["valueFrom"]["secretKeyRef"]
            data = self._api.objects["secrets"][key_of(namespace, reference["name"])]["data"]
            found[each["name"]] = base64.b64decode(data[reference["key"]]).decode()
        return found

    async def _open_network(self, pod: RunningPod) -> None:
        """What arrives at its address goes into its network; with no node in between, nowhere."""
        if not self._has_networks:
            return
        ways_out = self._ways_out()
        pod.sockets = sockets = await PodSockets.open(pod.agent_pid, list(ways_out))

        async def join_with(
            near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
            opened: Coroutine[Any, Any, tuple[asyncio.StreamReader, asyncio.StreamWriter]],
        ) -> None:
            pod.writers.add(near[1])
            try:
                far = await opened
                pod.writers.add(far[1])
                await join(near, far)
                pod.writers.discard(far[1])
            except OSError:
                near[1].close()
            finally:
                pod.writers.discard(near[1])

        async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if pod.node.is_cut_off:
                writer.transport.abort()
                return
            await join_with((reader, writer), sockets.connect(_AGENT_PORT))

        async def leave(
            app: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await join_with((reader, writer), asyncio.open_connection(*self.services[app]))

        pod.servers.append(await asyncio.start_server(enter, pod.address, _AGENT_PORT))
        for app, inside in zip(ways_out.values(), sockets.listening, strict=True):
            pod.servers.append(await asyncio.start_server(partial(leave, app), sock=inside))

    def _ways_out(self) -> dict[int, str]:
        """By their ports: the services that the deployed NetworkPolicies let a Pod reach. Inside it
        they have the address 127.0.0.1."""
        found: dict[int, str] = {}
        for policy in yaml.safe_load_all(_POLICIES.read_text()):
            for rule in policy["spec"].get("egress", ()):
                for port, to in product(rule["ports"], rule["to"]):
                    app = to["podSelector"]["matchLabels"]["app"]
                    found |= {port["port"]: app} if app in self.services else {}
        return found

    async def _ended(self, pod: RunningPod, log: Path) -> None:
        assert pod.process is not None
        code = await pod.process.wait()
        if pod.probing is not None:
            pod.probing.cancel()
        while self._is_cut_off(pod):
            await asyncio.sleep(_CHECK_SEC)
        end = dict(pod.end or {"reason": "Completed" if code == 0 else "Error", "exitCode": code})
        evicted = end.pop("evicted", None)
        message = log.read_text(errors="replace")[:4096]
        terminated = {**end, "message": message, "startedAt": now(), "finishedAt": now()}
        told = {"reason": "Evicted", "message": evicted} if evicted else {}
        self._tell(
            pod,
            phase="Succeeded" if code == 0 and not pod.end else "Failed",
            containerStatuses=[{"name": "sandbox", "state": {"terminated": terminated}}],
            **told,
        )
        await self._kill(pod)

    async def _end_deleted(self, uid: str, name: str) -> None:
        """SIGTERM, and after the grace period SIGKILL; then the object is gone."""
        pod = self.pods.get(uid)
        if pod is not None:
            with suppress(ProcessLookupError):
                if pod.agent_pid and pod.process is not None and pod.process.returncode is None:
                    os.kill(pod.agent_pid, signal.SIGTERM)
            grace_sec = self._api.objects["pods"][name]["metadata"]["deletionGracePeriodSeconds"]
            with suppress(TimeoutError):
                if pod.process is not None:
                    await asyncio.wait_for(pod.process.wait(), grace_sec)
            await self._kill(pod)
            del self.pods[uid]
            while self._is_cut_off(pod):
                await asyncio.sleep(_CHECK_SEC)
        self._api.remove_pod(name)

    async def _drop(self, uid: str) -> None:
        """Its object is gone, with no grace."""
        await self._kill(self.pods.pop(uid))

    async def _kill(self, pod: RunningPod) -> None:
        sockets, pod.sockets = pod.sockets, None
        for process in (pod.process, None if sockets is None else sockets.helper):
            if process is not None and process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if sockets is not None:
            sockets.close()
        while pod.servers:
            pod.servers.pop().close()
        for writer in list(pod.writers):
            writer.transport.abort()
        await asyncio.to_thread(shutil.rmtree, pod.folder, ignore_errors=True)

    def _tell(self, pod: RunningPod, **status: Any) -> dict[str, Any]:
        """Returns the status that it has then."""
        if status and not pod.node.is_cut_off:
            self._api.set_status(pod.name, **status)
        return dict(self._api.objects["pods"].get(pod.name, {}).get("status", {}))
