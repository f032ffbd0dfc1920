"""What Pods of different images may: one user by default, root in a namespace for it, or less."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.errors import StartFailedError
from sandyard.runtime.kubernetes.api import InvalidObjectError
from sandyard.runtime.kubernetes.manifest import name_of, pod
from sandyard.runtime.model import FileChanges, MachineSpec, Mount, Program
from tests.support.kubernetes.admission import ROOT_NAMESPACE
from tests.support.kubernetes.api_server import key_of
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.runtimes import until_ended
from tests.support.runtime.sessions import pieces, shell

ROOT = Program(None, root="root")


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        yield found


async def test_root_has_a_user_namespace_and_a_namespace_of_its_own(found: Cluster) -> None:
    one, other = found.runtime(), found.runtime()
    running = await one.start(new_run_id(), ROOT, LIMITS)
    name = name_of(running.run_id)
    made = found.api.objects["pods"][key_of(ROOT_NAMESPACE, name)]["spec"]
    assert (made["hostUsers"], made["securityContext"]["runAsUser"]) == (False, 0)
    assert name not in found.api.objects["pods"]
    session = await other.session(running.run_id)
    assert await shell(session, "id -u; touch /new; echo kept >kept") == b"0\n"
    ended = await other.stop(running.run_id)
    assert ended.snapshot is not None
    assert await one.refresh(running.run_id) == ended
    again = await one.start(new_run_id(), Program(None, ended.snapshot.id, root="root"), LIMITS)
    assert await shell(await other.session(again.run_id), "cat kept") == b"kept\n"
    await found.nodes.kill(key_of(ROOT_NAMESPACE, name_of(again.run_id)), reason="OOMKilled")
    assert (await until_ended(one, again.run_id)).reason == "out_of_memory"
    left = [each for each in found.api.objects["secrets"] if each.startswith(ROOT_NAMESPACE)]
    assert left == [], "keys of Pods that are gone"


async def test_without_a_user_namespace_there_is_no_root(found: Cluster) -> None:
    image = found.options.images["root"]
    made = pod(
        new_run_id(),
        LIMITS,
        found.options,
        image=image,
        isolation=None,
        egress=None,
        deadline_at=2e9,
        creation="ours",
    )
    del made["metadata"]["namespace"]
    with pytest.raises(InvalidObjectError, match="runAsNonRoot"):
        await found.client().create("pods", made)
    del made["spec"]["hostUsers"]
    with pytest.raises(InvalidObjectError, match="hostUsers"):
        await found.client(namespace=ROOT_NAMESPACE).create("pods", made)


async def test_root_has_no_volumes(found: Cluster) -> None:
    machines, _ = found.machines()
    await machines.volumes.create("vol-a", 1 << 20)
    spec = MachineSpec(LIMITS, 60, root="root", mounts=(Mount("vol-a", "/data"),))
    with pytest.raises(StartFailedError, match="no volumes"):
        await machines.create(new_run_id(), spec)


async def test_a_root_file_system_may_be_read_only_and_a_runtime_class_the_images_own(
    found: Cluster,
) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), Program(None, root="read-only"), LIMITS)
    made = found.api.objects["pods"][name_of(running.run_id)]["spec"]
    assert made["runtimeClassName"] == "kata"
    session = await runtime.session(running.run_id)
    script = "touch /new 2>&1 | grep -o Read-only; touch /tmp/new ~/new /workspace/new && echo made"
    assert await shell(session, script) == b"Read-only\nmade\n"
    await runtime.write_files(running.run_id, FileChanges(written={"kept": b"x"}))
    assert (await runtime.stop(running.run_id)).snapshot is not None


async def test_by_default_a_pod_has_neither_root_nor_a_token_nor_links_of_services(
    found: Cluster,
) -> None:
    """The cluster's own check of the restricted profile is passed by every start of these tests."""
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), Program(None), LIMITS)
    made = found.api.objects["pods"][name_of(running.run_id)]["spec"]
    assert made["automountServiceAccountToken"] is made["enableServiceLinks"] is False
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    script = "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; env; ls /var/run 2>&1; true"
    seen = (await shell(await runtime.session(running.run_id), script)).decode()
    assert seen.startswith("1000\n")
    assert "CapEff:\t0000000000000000" in seen
    assert "NoNewPrivs:\t1" in seen
    assert "SERVICE" not in seen
    assert "serviceaccount" not in seen


async def test_the_home_folder_is_the_workspace_and_so_is_kept(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), Program(None), LIMITS)
    session = await runtime.session(running.run_id)
    await session.files.apply(FileChanges(written={"one": b"1"}))
    await session.files.write("/home/user/two", pieces(b"2"))
    assert await shell(session, "cat ~/one /workspace/two; echo 3 >~/three; echo $HOME") == (
        b"12/home/user\n"
    )
    assert sorted(each.path for each in await session.files.list(".")) == [
        f"/workspace/{name}" for name in ("one", "three", "two")
    ]
    ended = await runtime.stop(running.run_id)
    assert ended.snapshot is not None
    again = await runtime.start(new_run_id(), Program(None, ended.snapshot.id), LIMITS)
    assert await shell(await runtime.session(again.run_id), "cat ~/one ~/two ~/three") == b"123\n"
