"""Clones over https: from a real git server on loopback, which is allowed only here, and refused
where it is not."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import (
    AddressRefusedError,
    CloneFailedError,
    InvalidRepositoryError,
    OverLimitError,
    ProcfileMissingError,
)
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Program, Repository
from tests.support.runtime.git_server import TOKEN, GitServer, git_server
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    MEGABYTE,
    OBEDIENT_APP,
    end_all,
    inside,
    new_run_id,
    started,
)

_PROCFILE = b'web: exec python3 -m http.server "$PORT" --bind 127.0.0.1\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with git_server(tmp_path_factory.mktemp("git")) as server:
        yield server


@pytest.fixture
def policy(server: GitServer) -> LocalOptions:
    return LocalOptions(allowed_networks=("127.0.0.1/32", "::1/128"), ca_files=(server.ca_file,))


@pytest.fixture
async def cloning(tmp_path: Path, policy: LocalOptions) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", policy, prepare_timeout_sec=20)
    yield runtime
    await end_all(runtime)


async def test_a_repository_is_cloned_and_served(cloning: LocalRuntime, server: GitServer) -> None:
    url = server.add("site", {"Procfile": _PROCFILE, "index.html": b"from git"})
    async with started(cloning, Program(Repository(url))) as running:
        assert await cloning.fetch(running) == b"from git"


async def test_a_branch_or_a_tag_and_a_folder_of_it_are_served(
    cloning: LocalRuntime, server: GitServer
) -> None:
    files = {"apps/web/Procfile": _PROCFILE, "apps/web/index.html": b"version one"}
    url = server.add("many", files)
    server.run(
        "many",
        "git tag v1",
        "git checkout --quiet -b next",
        "echo version two > apps/web/index.html",
        "git commit --quiet --all --message second",
        "git checkout --quiet main",
    )
    for ref, page in (("v1", b"version one"), ("next", b"version two\n")):
        source = Repository(url, ref=ref, folder="apps/web")
        async with started(cloning, Program(source)) as running:
            assert await cloning.fetch(running) == page
    with pytest.raises(CloneFailedError, match="v9"):
        await cloning.start(new_run_id(), Program(Repository(url, ref="v9")), LIMITS)
    program = Program(Repository(url, folder="apps"), policy="ends_machine")
    with pytest.raises(ProcfileMissingError):
        await cloning.start(new_run_id(), program, LIMITS)


@pytest.mark.parametrize("token", [TOKEN, f"somebody:{TOKEN}"])
async def test_a_private_repository_is_cloned_with_a_token_that_stays_nowhere(
    cloning: LocalRuntime, server: GitServer, token: str
) -> None:
    url = server.add(f"secret-{len(token)}", {"Procfile": _PROCFILE, "index.html": b"private"})
    program = Program(Repository(url, token=token))
    async with started(cloning, program) as running:
        assert await cloning.fetch(running) == b"private"
        folder = cloning.folder_of(running.run_id).path
        for path in folder.rglob("*"):
            assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
        session = await cloning.session(running.run_id)
        told = str(
            [await session.processes.get(each.id) for each in await session.processes.list()]
        )
        assert TOKEN not in told
    assert TOKEN not in repr(program)


async def test_without_its_token_or_with_another_it_stays_closed(
    cloning: LocalRuntime, server: GitServer
) -> None:
    url = server.add("secret-closed", {"Procfile": _PROCFILE})
    for token in (None, "wrong"):
        with pytest.raises(CloneFailedError) as caught:
            await cloning.start(new_run_id(), Program(Repository(url, token=token)), LIMITS)
        assert "wrong" not in caught.value.message


async def test_a_token_goes_to_no_other_host(cloning: LocalRuntime, server: GitServer) -> None:
    """Not by a redirect either: 127.0.0.1 and localhost are two hosts."""
    server.add("secret-elsewhere", {"Procfile": _PROCFILE})
    url = f"{server.url}/elsewhere/secret-elsewhere/.git"
    with pytest.raises(CloneFailedError, match=r"https://localhost\S* asks for a login"):
        await cloning.start(new_run_id(), Program(Repository(url, token=TOKEN)), LIMITS)


@pytest.mark.parametrize(
    "ref", ["--upload-pack=id", "a..b", "a b", "", "-x", "a/", "/a", "a.", "~"]
)
async def test_what_is_no_branch_is_not_even_tried(runtime: LocalRuntime, ref: str) -> None:
    source = Repository("https://example.org/x.git", ref=ref)
    with pytest.raises(InvalidRepositoryError):
        await runtime.start(new_run_id(), Program(source), LIMITS)


async def test_without_walls_it_is_cloned_through_the_same_gate(
    tmp_path: Path, policy: LocalOptions, server: GitServer
) -> None:
    url = server.add("plain-site", {"Procfile": _PROCFILE, "index.html": b"from git"})
    runtime = LocalRuntime(tmp_path / "runtime", replace(policy, isolation="none"))
    async with started(runtime, Program(Repository(url))) as running:
        assert await runtime.fetch(running) == b"from git"
    strict = LocalRuntime(
        tmp_path / "strict", replace(policy, isolation="none", allowed_networks=())
    )
    with pytest.raises(AddressRefusedError):
        await strict.start(new_run_id(), Program(Repository(url)), LIMITS)


async def test_what_a_hostile_repository_brings_is_not_run(
    cloning: LocalRuntime, server: GitServer, tmp_path: Path
) -> None:
    """Submodules by file:// and ext::, hooks, links to the host and filters stay dead letters."""
    trace = tmp_path / "trace"
    modules = f"""[submodule "a"]
\tpath = a
\turl = ext::sh -c touch% {trace}
[submodule "b"]
\tpath = b
\turl = file:///etc
"""
    files = {
        "Procfile": b"web: exec python3 app.py\n",
        "app.py": OBEDIENT_APP,
        ".gitmodules": modules.encode(),
        ".gitattributes": b"* filter=evil\n",
    }
    sub = "git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,{}"
    url = server.add(
        "hostile",
        files,
        sub.format("a"),
        sub.format("b"),
        f"mkdir hooks; printf '#!/bin/sh\\ntouch {trace}' > hooks/post-checkout; chmod +x hooks/*",
        "ln -s /etc/shadow shadow; ln -s .git/hooks links",
    )
    async with started(cloning, Program(Repository(url))) as running:
        assert not trace.exists()
        for path in ("shadow", "a/.git", "b/.git", ".git/hooks", ".git/modules"):
            look = f"import os; print(os.path.exists({path!r}))"
            assert await inside(cloning, running, look) == "False"


async def test_a_repository_may_not_bring_its_procfile_by_a_link(
    cloning: LocalRuntime, server: GitServer
) -> None:
    url = server.add("linked", {"real": _PROCFILE}, "ln -s real Procfile")
    program = Program(Repository(url), policy="ends_machine")
    with pytest.raises(ProcfileMissingError):
        await cloning.start(new_run_id(), program, LIMITS)


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c id",
        "file:///etc",
        "/etc",
        "http://example.org/x.git",
        "git://example.org/x.git",
        "ssh://git@example.org/x.git",
        "git@example.org:x.git",
        "https://user:secret@example.org/x.git",
        "https://user@example.org/x.git",
        "https:///x.git",
        "https://example.org:99999/x.git",
        "https://exa mple.org/x.git",
        "https://example.org/x.git\nhttps://",
        "--upload-pack=id",
        "",
        "builtin:../static",
        "builtin:unknown",
    ],
)
async def test_another_kind_of_address_is_not_even_tried(runtime: LocalRuntime, url: str) -> None:
    with pytest.raises(InvalidRepositoryError):
        await runtime.start(new_run_id(), Program(Repository(url)), LIMITS)
    assert await runtime.list_runs("sandbox") == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "169.254.169.254",
    ],
)
async def test_a_private_address_is_refused(runtime: LocalRuntime, host: str) -> None:
    """Refused before a packet is sent, so that no link-local address is really asked."""
    async with asyncio.timeout(60):
        with pytest.raises(AddressRefusedError, match="private"):
            await runtime.start(new_run_id(), Program(Repository(f"https://{host}/x.git")), LIMITS)


async def test_a_redirect_leads_to_no_private_address(
    cloning: LocalRuntime, server: GitServer
) -> None:
    with pytest.raises(AddressRefusedError, match=r"10\.255\.255\.1"):
        await cloning.start(
            new_run_id(), Program(Repository(f"{server.url}/private/x.git")), LIMITS
        )


@pytest.mark.parametrize("name", ["missing", "locked", "plain"])
async def test_what_can_not_be_cloned_is_told(
    cloning: LocalRuntime, server: GitServer, name: str
) -> None:
    with pytest.raises(CloneFailedError) as caught:
        await cloning.start(new_run_id(), Program(Repository(f"{server.url}/{name}/x.git")), LIMITS)
    assert "could not be cloned" in caught.value.message


async def test_a_clone_that_takes_too_long_is_given_up(
    tmp_path: Path, policy: LocalOptions, server: GitServer
) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", policy, prepare_timeout_sec=1)
    with pytest.raises(CloneFailedError, match="within 1 s"):
        await runtime.start(new_run_id(), Program(Repository(f"{server.url}/slow/x.git")), LIMITS)


async def test_a_clone_that_is_too_large_is_given_up(
    cloning: LocalRuntime, server: GitServer
) -> None:
    url = server.add("large", {"Procfile": _PROCFILE, "large": os.urandom(30 * MEGABYTE)})
    limits = replace(LIMITS, storage_bytes=20 * MEGABYTE)
    with pytest.raises((OverLimitError, CloneFailedError)):
        await cloning.start(new_run_id(), Program(Repository(url)), limits)
