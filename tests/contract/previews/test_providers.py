"""What every preview provider promises, on this machine, in a cluster and at E2B's double."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from sandyard.previews.errors import PreviewElsewhereError, ProviderTroubleError, SandboxGoneError
from sandyard.previews.ports import PreviewProvider, PreviewSandbox
from sandyard.previews.providers.local import LocalPreviewProvider
from tests.support.previews.providers import (
    HOUR,
    PAGE,
    PROVIDERS,
    ProviderHost,
    create,
    edit,
    provider_host,
    until_gone,
)


@pytest.fixture(params=PROVIDERS)
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProviderHost]:
    async with provider_host(request.param, tmp_path) as host:
        yield host


@pytest.fixture
def provider(host: ProviderHost) -> PreviewProvider:
    return host.connect()


async def shown(host: ProviderHost, sandbox: PreviewSandbox, *paths: str) -> list[bytes | None]:
    """What these paths show; None for what is not there."""
    pages = [await host.page(sandbox, path) for path in paths]
    return [page.content if page.is_success else None for page in pages]


def calls_on(provider: PreviewProvider, sandbox_id: str) -> list[Awaitable[object]]:
    """What raises SandboxGoneError when the sandbox is gone."""
    return [
        provider.get(sandbox_id),
        provider.end_time(sandbox_id),
        provider.write_files(sandbox_id, written=PAGE, deleted=[]),
    ]


STARTS_WITHIN = timedelta(minutes=2)
"""Its time begins when it shows the page, and so a moment after the program has started."""


async def test_a_new_sandbox_shows_the_files_and_knows_its_times(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    before = datetime.now(UTC)
    made = await create(provider, files=PAGE | {"a/ü b.bin": b"\0\xff", 'o"d%d.html': b"odd"})
    assert made.attempt == "first"
    assert before <= made.start_time <= datetime.now(UTC)
    assert HOUR <= made.end_time - made.start_time < HOUR + STARTS_WITHIN
    paths = ("/", "/a/%C3%BC%20b.bin", "/o%22d%25d.html")
    assert await shown(host, made, *paths) == [b"<h1>one</h1>", b"\0\xff", b"odd"]
    for server in (provider, host.connect()):
        assert await server.get(made.sandbox_id) == made
        assert await server.end_time(made.sandbox_id) == made.end_time


async def test_files_are_written_and_deleted_deletions_first(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider, files=PAGE | {"old.html": b"old", "folder/page.html": b"x"})
    await provider.write_files(
        made.sandbox_id,
        written={"index.html": b"<h1>two</h1>", "folder": b"a file now", "new/page.html": b"new"},
        deleted=["index.html", "old.html", "folder/page.html", "never-was.html"],
    )
    assert await shown(host, made, "/", "/folder", "/new/page.html", "/old.html") == [
        b"<h1>two</h1>",
        b"a file now",
        b"new",
        None,
    ]
    assert await provider.get(made.sandbox_id) == made


async def test_all_files_can_go_and_come_back(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider, files={})
    assert await shown(host, made, "/index.html") == [None]
    await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    await provider.write_files(made.sandbox_id, written={}, deleted=list(PAGE))
    assert await shown(host, made, "/index.html") == [None]
    await provider.write_files(made.sandbox_id, written=PAGE, deleted=[])
    assert await shown(host, made, "/") == [b"<h1>one</h1>"]


async def test_many_files_are_shown(host: ProviderHost, provider: PreviewProvider) -> None:
    files = {f"folder-{number % 7}/{number}.txt": b"%d" % number for number in range(120)}
    made = await create(provider, files=files)
    some = list(files)[::25]
    assert await shown(host, made, *(f"/{path}" for path in some)) == [files[p] for p in some]
    assert await shown(host, made, "/index.html") == [None]


async def test_an_attempt_is_found_again_and_told_from_others(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    names = [("prj-a", "first"), ("prj-a", "second"), ("prj-b", "first")]
    made = {
        (project_id, attempt): await create(provider, attempt, project_id=project_id)
        for project_id, attempt in names
    }
    assert len({sandbox.sandbox_id for sandbox in made.values()}) == 3
    restarted = host.connect()
    for (project_id, attempt), sandbox in made.items():
        found = await restarted.find_attempt(project_id=project_id, attempt=attempt)
        assert found == sandbox
    assert await restarted.find_attempt(project_id="prj-a", attempt="third") is None
    assert await restarted.find_attempt(project_id="prj-b", attempt="second") is None


async def test_at_the_end_of_its_time_it_is_gone(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider, ttl=timedelta(seconds=2))
    assert timedelta(seconds=2) <= made.end_time - made.start_time < STARTS_WITHIN
    await until_gone(provider, made.sandbox_id)
    assert datetime.now(UTC) >= made.end_time
    with pytest.raises(httpx.TransportError):
        await host.page(made)
    for call in calls_on(provider, made.sandbox_id):
        with pytest.raises(SandboxGoneError):
            await call
    with suppress(SandboxGoneError):  # where it is known that there will never be one
        assert await provider.find_attempt(project_id="prj-a", attempt="first") is None
    await provider.kill(made.sandbox_id)
    assert await provider.find_attempt(project_id="prj-a", attempt="first") is None


async def test_its_time_can_be_made_longer_and_shorter_and_writing_changes_nothing(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider, ttl=timedelta(seconds=4))
    await host.end_in(made, HOUR)
    longer = await provider.get(made.sandbox_id)
    assert abs(longer.end_time - datetime.now(UTC) - HOUR) < timedelta(seconds=5)
    await edit(provider, made.sandbox_id)
    assert await provider.get(made.sandbox_id) == longer
    await asyncio.sleep((made.end_time - datetime.now(UTC)).total_seconds() + 0.5)
    assert await shown(host, made, "/new.html") == [b"new"]
    await host.end_in(made, timedelta(seconds=20))
    shorter = await provider.get(made.sandbox_id)
    assert abs(shorter.end_time - datetime.now(UTC)) < timedelta(seconds=21)
    assert await provider.end_time(made.sandbox_id) == shorter.end_time
    await host.end_in(made, timedelta(0))
    await until_gone(provider, made.sandbox_id)


async def test_a_killed_one_is_gone_however_often_it_is_killed(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made, other = await create(provider), await create(provider, project_id="prj-b")
    await asyncio.gather(*(provider.kill(made.sandbox_id) for _ in range(3)))
    await host.connect().kill(made.sandbox_id)
    for call in calls_on(provider, made.sandbox_id):
        with pytest.raises(SandboxGoneError):
            await call
    with pytest.raises(httpx.TransportError):
        await host.page(made)
    assert await provider.find_attempt(project_id="prj-a", attempt="first") is None
    assert await provider.get(other.sandbox_id) == other


@pytest.mark.parametrize(
    "sandbox_id",
    ["prj-a.never", "i8f3k2l1abc", "", "..", "a.b.c", "a/../b.c", "../v2/sandboxes", "x" * 200],
)
async def test_what_was_never_made_here_is_gone(provider: PreviewProvider, sandbox_id: str) -> None:
    for call in calls_on(provider, sandbox_id):
        with pytest.raises(SandboxGoneError):
            await call
    await provider.kill(sandbox_id)


async def test_what_another_node_has_is_never_gone(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    attempt = provider.make_attempt_id()
    assert attempt != provider.make_attempt_id()
    made = await create(provider, attempt)
    elsewhere = host.connect_from_another_node()
    calls = (
        *calls_on(elsewhere, made.sandbox_id),
        elsewhere.find_attempt(project_id="prj-a", attempt=attempt),
        elsewhere.kill(made.sandbox_id),
    )
    if isinstance(elsewhere, LocalPreviewProvider) and elsewhere.node != "kubernetes-default":
        for call in (*calls, create(elsewhere, attempt)):
            with pytest.raises(PreviewElsewhereError) as refused:
                await call
            assert refused.value.details == {"node": "here"}
        assert await provider.get(made.sandbox_id) == made
        assert await shown(host, made, "/") == [b"<h1>one</h1>"]
        return
    for call in calls:  # E2B's and a cluster's are everybody's
        await call
    assert await provider.find_attempt(project_id="prj-a", attempt=attempt) is None


async def test_many_may_ask_for_the_end_at_once(provider: PreviewProvider) -> None:
    made = [await create(provider, f"attempt-{number}") for number in range(3)]
    asked = [each.sandbox_id for each in made] * 40
    ends = await asyncio.gather(*map(provider.end_time, asked))
    assert ends == [each.end_time for each in made] * 40


async def test_a_closed_provider_leaves_its_sandboxes_running(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider)
    await provider.close()
    assert await host.connect().get(made.sandbox_id) == made
    assert await shown(host, made, "/") == [b"<h1>one</h1>"]


async def test_an_outage_is_trouble_and_never_gone(
    host: ProviderHost, provider: PreviewProvider
) -> None:
    made = await create(provider)
    with host.outage() as unreachable:
        for call in (
            *calls_on(unreachable, made.sandbox_id),
            unreachable.find_attempt(project_id="prj-a", attempt="first"),
            unreachable.kill(made.sandbox_id),
            create(unreachable, "second"),
        ):
            with pytest.raises(ProviderTroubleError):
                await call
    assert await provider.get(made.sandbox_id) == made
    assert await provider.find_attempt(project_id="prj-a", attempt="second") is None
