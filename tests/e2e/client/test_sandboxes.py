"""Sandboxes by the client, on a real server: commands run once, and their output survives lost
connections and a restart."""

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sandyard_client import (
    AsyncClient,
    AsyncSandbox,
    Client,
    CommandFailedError,
    ConflictError,
    Connection,
    ConnectionFailedError,
    NotFoundError,
    RetryPolicy,
    Sandbox,
)

from tests.e2e.client.conftest import QUICKLY
from tests.e2e.client.lossy_proxy import Fate, LossyProxy
from tests.e2e.client.restarting import RestartingServer
from tests.support.servers.users import Person, signed_up, until

PARTS = "broker,telemetry,platform,previews"


@pytest.fixture(scope="module")
def ann(backend: RestartingServer) -> Person:
    return signed_up(backend.process, "ann", mail=1)


@pytest.fixture(scope="module")
def api_key(ann: Person) -> str:
    return str(ann.call("POST", "/api-keys", {"name": "tests"}, expect=201)["api_key"])


@pytest.fixture
def connection(proxy: LossyProxy, api_key: str) -> Connection:
    return Connection(proxy.url, api_key=api_key)


@pytest.fixture(scope="module")
def box_id(backend: RestartingServer, api_key: str) -> Iterator[str]:
    """A running sandbox for the tests of the module."""
    connection = Connection(backend.url, api_key=api_key)
    with (
        Client(connection) as client,
        Sandbox.create(template="python", name="box", client=client) as sandbox,
    ):
        yield sandbox.sandbox_id


@pytest.fixture
def box(box_id: str, client: Client) -> Sandbox:
    return Sandbox.get(box_id, client=client)


def test_a_command_gives_its_output_and_exit_code(box: Sandbox) -> None:
    seen: list[str] = []
    result = box.run(
        "echo out; echo err >&2; echo $LEVEL; exit 3",
        env={"LEVEL": "7"},
        on_output=lambda output: seen.append(output.stream),
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n7\n", "err\n")
    assert {*seen} == {"stdout", "stderr"}
    with pytest.raises(CommandFailedError, match="ended with 1"):
        box.run(["false"], check=True)


def test_a_command_is_killed_when_its_time_is_over(box: Sandbox) -> None:
    result = box.run("echo begun; sleep 600", timeout=5)
    assert result.timed_out
    assert (result.exit_code, result.stdout) == (137, "begun\n")


def test_a_command_whose_answer_is_lost_runs_once(box: Sandbox, proxy: LossyProxy) -> None:
    proxy.first(["drop"], path="/commands")
    name = uuid4().hex
    result = box.run(f"echo once >> {name}; cat {name}")
    assert (result.exit_code, result.stdout) == (0, "once\n")
    assert proxy.count("drop") == 1


def test_a_command_that_the_server_may_not_have_got_is_sent_again_and_runs_once(
    box: Sandbox, proxy: LossyProxy
) -> None:
    proxy.first(["reset", "refuse_late", "drop"], path="/commands")
    name = uuid4().hex
    assert box.run(f"echo once >> {name}; cat {name}").stdout == "once\n"
    posts = [path for method, path, _ in proxy.met if method == "POST"]
    assert len(posts) == 4


def test_output_goes_on_behind_a_cut_connection(box: Sandbox, proxy: LossyProxy) -> None:
    proxy.first(["cut", "cut", "cut"], path="/output")
    result = box.run("for n in $(seq 12); do echo $n; sleep 0.1; done")
    assert result.stdout.split() == [str(number) for number in range(1, 13)]
    assert proxy.count("cut") >= 1


def test_output_survives_a_restart_of_the_server(box: Sandbox, backend: RestartingServer) -> None:
    name = f"/tmp/{uuid4().hex}"  # noqa: S108 - of the sandbox
    begun = threading.Event()

    def restart() -> None:
        assert begun.wait(60)
        backend.restart()

    restarting = threading.Thread(target=restart)
    restarting.start()
    line = f"echo 1; until test -e {name}; do sleep 0.1; done; echo 2"

    def end_it() -> None:
        restarting.join()
        box.files.write(name, "")

    ending = threading.Thread(target=end_it)
    ending.start()
    result = box.run(line, on_output=lambda _: begun.set())
    ending.join()
    assert (result.exit_code, result.stdout) == (0, "1\n2\n")


def test_files_go_in_and_out(box: Sandbox, proxy: LossyProxy, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    proxy.first(["drop", "refuse_late"], path="/files")
    box.files.write("data/bytes.bin", content)
    proxy.first(["cut"], path="/files?")
    seen: list[int] = []
    box.files.download("data/bytes.bin", tmp_path, progress=lambda done, _size: seen.append(done))
    assert (tmp_path / "bytes.bin").read_bytes() == content == box.files.read("data/bytes.bin")
    assert seen[-1] == len(content)
    folder = tmp_path / "tree"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("text")
    box.files.upload(folder, "/workspace/tree")
    assert [each.name for each in box.files.list("tree", depth=2)] == ["deep", "file"]
    box.files.download("tree", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "file").read_text() == "text"
    proxy.first(["drop"], path="/files")
    box.files.remove("tree")
    with pytest.raises(NotFoundError):
        box.files.read("tree/deep/file")
    with pytest.raises(NotFoundError):
        box.files.remove("tree")


def test_one_sandbox_is_made_although_the_answers_are_lost(
    client: Client, proxy: LossyProxy, ann: Person
) -> None:
    name = f"once-{uuid4().hex[:8]}"
    proxy.first(["drop", "refuse_late"], path="/sandboxes")
    sandbox = Sandbox.create(template="python", start=False, name=name, client=client)
    proxy.calm()
    listed = ann.call("GET", f"/sandboxes?q={name}")["sandboxes"]
    assert [each["sandbox_id"] for each in listed] == [sandbox.sandbox_id]
    with pytest.raises(ConflictError) as taken:
        Sandbox.create(template="python", start=False, name=name, client=client)
    assert taken.value.code == "SANDBOX_NAME_TAKEN"
    sandbox.recycle()
    sandbox.recycle()
    assert sandbox.refresh().status == "recycled"


def test_a_sandbox_whose_maker_got_no_answer_is_given_up(
    connection: Connection, proxy: LossyProxy, ann: Person
) -> None:
    name = f"lost-{uuid4().hex[:8]}"

    def lose_making(method: str, path: str) -> Fate:
        return "drop" if method == "POST" and path == "/api/v1/sandboxes" else "pass"

    proxy.choose = lose_making
    impatient = RetryPolicy(within_sec=0.3, first_delay_sec=0.2)
    with Client(connection, retries=impatient) as client, pytest.raises(ConnectionFailedError):
        Sandbox.create(template="python", start=False, name=name, client=client)
    [left] = ann.call("GET", f"/sandboxes?q={name}")["sandboxes"]
    assert left["status"] == "recycled"


def test_what_does_not_start_is_given_up(client: Client, ann: Person, box_id: str) -> None:
    name = f"huge-{uuid4().hex[:8]}"
    with pytest.raises(ConflictError) as refused:
        Sandbox.create(template="python", name=name, cpu_spec=8, client=client)
    assert refused.value.code == "QUOTA_EXCEEDED"
    [left] = ann.call("GET", f"/sandboxes?q={name}")["sandboxes"]
    assert left["status"] == "recycled"
    with pytest.raises(NotFoundError, match="no-such-template"):
        Sandbox.create(template="no-such-template", name=name, client=client)


def test_logs_are_shown_and_followed(client: Client) -> None:
    with Sandbox.create(template="static", client=client) as sandbox:
        sandbox.run("true")
        until(lambda: [*sandbox.logs()])
        lines = sandbox.logs(follow=True)
        assert next(lines) == next(sandbox.logs())
        assert sandbox.link().url is not None


async def test_an_async_sandbox_is_created_and_recycled(
    connection: Connection, ann: Person
) -> None:
    name = f"async-{uuid4().hex[:8]}"
    async with AsyncClient(connection) as client:
        async with AsyncSandbox.create(template="python", name=name, client=client) as made:
            assert (await made.run("echo $HOME")).exit_code == 0
            assert name in repr(made)
        with pytest.raises(NotFoundError, match="no-such-template"):
            await AsyncSandbox.create(template="no-such-template", client=client)
    assert ann.call("GET", f"/sandboxes/{made.sandbox_id}")["status"] == "recycled"


async def test_async_calls_survive_lost_answers(
    connection: Connection, proxy: LossyProxy, box_id: str
) -> None:
    patient = RetryPolicy(QUICKLY.within_sec, QUICKLY.first_delay_sec)
    async with AsyncClient(connection, retries=patient) as client:
        box = await AsyncSandbox.get(box_id, client=client)
        proxy.first(["drop"], path="/commands")
        result = await box.run("echo async")
        assert result.stdout == "async\n"
        proxy.first(["refuse_late"], path="/files")
        await box.files.write("async.txt", "text")
        assert await box.files.read("async.txt") == b"text"
