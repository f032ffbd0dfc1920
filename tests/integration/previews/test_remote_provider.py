"""Previews at E2B, besides what every provider promises: with a double over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from sandyard.bootstrap.previews import open_e2b_provider
from sandyard.kit.errors import SandyardError
from sandyard.kit.free_ports import free_port
from sandyard.previews.errors import (
    ProviderFailedError,
    ProviderKeyRefusedError,
    ProviderRateLimitedError,
    ProviderTimeoutError,
    ProviderTroubleError,
    ProviderUnreachableError,
    SandboxGoneError,
)
from sandyard.previews.providers.remote import SITE, RemotePreviewProvider
from sandyard.runtime.e2b.control import FEW, E2bTimeouts
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.settings import E2bSettings
from tests.support.e2b.double import API_KEY, E2bDouble, e2b_double
from tests.support.e2b.double_process import e2b_double_process
from tests.support.previews.providers import PAGE, connect_to, create, edit, page_of

IMPATIENT = E2bTimeouts(request_sec=0.5, create_sec=0.5, files_sec=0.5)

Call = Callable[[RemotePreviewProvider, str], Awaitable[object]]
CALLS: dict[str, Call] = {
    "create": lambda provider, _: create(provider, "another"),
    "list": lambda provider, _: provider.find_attempt(project_id="prj-a", attempt="first"),
    "get": lambda provider, sandbox_id: provider.get(sandbox_id),
    "connect": lambda provider, sandbox_id: edit(provider, sandbox_id),
    "upload": lambda provider, sandbox_id: edit(provider, sandbox_id),
    "remove": lambda provider, sandbox_id: edit(provider, sandbox_id),
    "run": lambda provider, sandbox_id: edit(provider, sandbox_id),
    "timeout": lambda provider, sandbox_id: provider.machines.set_timeout(
        sandbox_id, lifetime_sec=3600
    ),
    "delete": lambda provider, sandbox_id: provider.kill(sandbox_id),
}
"""A call of the provider for each that the SDK makes."""
INSIDE = ("upload", "remove", "run")
"""Those that go to the sandbox itself, and not to the control API."""


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


@pytest.fixture
def provider(double: E2bDouble) -> RemotePreviewProvider:
    return connect_to(double)


async def error_of(call: Awaitable[object]) -> SandyardError:
    with pytest.raises(SandyardError) as raised:
        await call
    return raised.value


async def test_a_preview_is_one_sandbox_until_it_is_killed(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    files = {f"folder-{number % 7}/{number}.txt": b"%d" % number for number in range(120)}
    made = await create(provider, files=files)
    [box] = double.boxes
    assert (made.sandbox_id, made.end_time) == (box.sandbox_id, box.end_at)
    assert box.metadata == {"kind": "preview", "project_id": "prj-a", "attempt": "first"}
    assert box.files == {f"{SITE}/{path}": content for path, content in files.items()}
    assert made.preview_url.startswith(f"http://8080-{box.sandbox_id}.localhost:")
    await edit(provider, made.sandbox_id)
    assert double.boxes == [box]
    await provider.kill(made.sandbox_id)
    assert double.boxes == []


async def test_without_addresses_of_its_own_the_preview_is_found_by_https(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    chosen = {"e2b_api_key": API_KEY, "e2b_api_url": double.url, "e2b_port": 3000}
    settings = E2bSettings.model_validate(chosen)
    elsewhere = open_e2b_provider(settings, double.pool(Backoff()))
    found = await elsewhere.get(made.sandbox_id)
    assert found.preview_url.startswith(f"https://3000-{made.sandbox_id}.localhost:")


async def test_one_that_ends_while_its_files_are_written_is_gone(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    double.inject("slow", "upload", seconds=0.3)
    writing = asyncio.create_task(edit(provider, made.sandbox_id))
    await double.called("upload")
    double.end(made.sandbox_id)
    with pytest.raises(SandboxGoneError):
        await writing


@pytest.mark.parametrize("sandbox_id", ["prj-a.first", "", "..", "../v2/sandboxes", "x" * 200])
async def test_another_providers_sandbox_is_gone_without_a_question(
    double: E2bDouble, provider: RemotePreviewProvider, sandbox_id: str
) -> None:
    for operation in ("get", "connect"):
        with pytest.raises(SandboxGoneError):
            await CALLS[operation](provider, sandbox_id)
    await provider.kill(sandbox_id)
    assert not double.calls


async def test_two_attempts_and_two_projects_are_told_apart(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    names = [("prj-a", f"attempt {n} &=%") for n in range(4)] + [("prj-b", "attempt 0 &=%")]
    made = {
        (project_id, attempt): await create(provider, attempt, project_id=project_id)
        for project_id, attempt in names
    }
    assert len(double.boxes) == 5
    for (project_id, attempt), sandbox in made.items():
        found = await provider.find_attempt(project_id=project_id, attempt=attempt)
        assert found == sandbox
    assert await provider.find_attempt(project_id="prj-b", attempt="attempt 1 &=%") is None


async def test_an_attempt_is_found_on_a_later_page_of_a_list_that_is_not_narrowed(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = [await create(provider, f"attempt-{number}") for number in range(5)]
    double.is_list_narrowed = False
    double.most_per_page = 2
    assert await provider.find_attempt(project_id="prj-a", attempt="attempt-4") == made[4]
    assert await provider.find_attempt(project_id="prj-a", attempt="attempt-5") is None
    assert double.calls["list"] == 6


@pytest.mark.parametrize("kind", ["drop_after", "hang_after"])
async def test_a_create_whose_answer_is_lost_is_found_again_and_was_sent_once(
    double: E2bDouble, kind: str
) -> None:
    double.inject(kind, "create")
    with pytest.raises(ProviderTroubleError):
        await create(connect_to(double, timeouts=IMPATIENT))
    double.calm()
    [box] = double.boxes
    assert double.calls["create"] == 1
    provider = connect_to(double)
    found = await provider.find_attempt(project_id="prj-a", attempt="first")
    assert found is not None
    assert found.sandbox_id == box.sandbox_id
    await provider.write_files(found.sandbox_id, written=PAGE, deleted=[])
    assert (await page_of(double, found)).content == b"<h1>one</h1>"


@pytest.mark.parametrize("operation", ["upload", "run", "get"])
async def test_a_create_that_breaks_off_after_the_sandbox_is_made_is_found_again(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    double.inject("error", operation)
    with pytest.raises(ProviderFailedError):
        await create(provider)
    double.calm()
    found = await provider.find_attempt(project_id="prj-a", attempt="first")
    assert found is not None
    assert double.calls["create"] == 1


@pytest.mark.parametrize("kind", ["drop", "rate_limited", "unavailable", "error"])
async def test_a_create_that_was_not_carried_out_is_not_sent_again_by_itself(
    double: E2bDouble, provider: RemotePreviewProvider, kind: str
) -> None:
    double.inject(kind, "create", times=1)
    with pytest.raises(ProviderTroubleError):
        await create(provider)
    assert (double.calls["create"], double.boxes) == (1, [])
    assert await provider.find_attempt(project_id="prj-a", attempt="first") is None


@pytest.mark.parametrize("operation", CALLS)
async def test_each_trouble_is_told_as_what_it_is_and_never_as_gone(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    kinds = {
        "unauthorized": ProviderKeyRefusedError,
        "rate_limited": ProviderRateLimitedError,
        "error": ProviderFailedError,
        "unavailable": ProviderUnreachableError if operation in INSIDE[1:] else ProviderFailedError,
        "nonsense": ProviderFailedError if operation in INSIDE else ProviderTroubleError,
        "drop": ProviderUnreachableError,
    }
    for kind, expected in kinds.items():
        double.calm()
        double.inject(kind, operation)
        error = await error_of(CALLS[operation](provider, made.sandbox_id))
        assert type(error) is expected, (kind, error)
    double.calm()
    assert (await provider.get(made.sandbox_id)).sandbox_id == made.sandbox_id


@pytest.mark.parametrize("operation", CALLS)
async def test_an_answer_that_does_not_come_is_a_time_out_in_time(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    double.inject("hang", operation)
    impatient = connect_to(double, timeouts=IMPATIENT)
    async with asyncio.timeout(30):  # far less than it hangs
        error = await error_of(CALLS[operation](impatient, made.sandbox_id))
    assert type(error) is ProviderTimeoutError


@pytest.mark.parametrize("operation", CALLS)
async def test_how_long_to_wait_is_kept(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    double.inject("rate_limited", operation, retry_after=17)
    error = await error_of(CALLS[operation](provider, made.sandbox_id))
    assert error.retry_after == 17
    double.calm()
    double.inject("rate_limited", operation)
    error = await error_of(CALLS[operation](connect_to(double), made.sandbox_id))
    assert error.retry_after == 5


@pytest.mark.parametrize("kind", ["rate_limited", "error", "unavailable"])
@pytest.mark.parametrize("operation", ["list", "get", "connect", "delete"])
async def test_what_may_be_sent_twice_is_sent_again_after_a_refusal(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str, kind: str
) -> None:
    made = await create(provider)
    double.reset_counts()
    double.inject(kind, operation, times=2)
    await CALLS[operation](provider, made.sandbox_id)
    assert double.calls[operation] == 3
    double.inject(kind, operation)
    double.reset_counts()
    await error_of(CALLS[operation](provider, made.sandbox_id))
    assert double.calls[operation] == 3, "not for ever"


@pytest.mark.parametrize("operation", ["create", "list", "get", "connect", "timeout", "delete"])
async def test_before_the_time_that_e2b_named_nothing_is_sent(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    double.inject("rate_limited", operation, times=1, retry_after=17)
    refused = await error_of(CALLS[operation](provider, made.sandbox_id))
    assert refused.retry_after == 17
    double.reset_counts()
    for each in CALLS:
        error = await error_of(CALLS[each](provider, made.sandbox_id))
        assert type(error) is ProviderRateLimitedError
        assert error.made_nothing
        assert error.retry_after in (16, 17)
    assert not double.calls


@pytest.mark.parametrize("operation", ["get", "connect", "timeout"])
async def test_only_the_control_apis_own_not_found_makes_a_sandbox_gone(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    double.inject("not_found", operation)
    error = await error_of(CALLS[operation](provider, made.sandbox_id))
    assert type(error) is SandboxGoneError


@pytest.mark.parametrize("operation", ["create", "list", "upload", "run"])
async def test_not_found_is_trouble_where_it_can_not_mean_the_sandbox(
    double: E2bDouble, provider: RemotePreviewProvider, operation: str
) -> None:
    made = await create(provider)
    double.inject("not_found", operation)
    error = await error_of(CALLS[operation](provider, made.sandbox_id))
    assert type(error) is ProviderTroubleError


async def test_a_sandbox_that_only_its_proxy_does_not_find_is_not_gone(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    double.inject("lost", "upload")
    error = await error_of(edit(provider, made.sandbox_id))
    assert type(error) is ProviderUnreachableError


async def test_a_wrong_key_is_told_as_such(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    stranger = connect_to(double, "e2b_another_key")
    for operation in set(CALLS) - set(INSIDE):
        error = await error_of(CALLS[operation](stranger, made.sandbox_id))
        assert type(error) is ProviderKeyRefusedError
        assert "e2b_another_key" not in f"{error} {error.__cause__}"
    double.inject("forbidden", "get")
    assert type(await error_of(provider.get(made.sandbox_id))) is ProviderKeyRefusedError


async def test_a_provider_that_is_not_there_is_unreachable(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    nobody = f"http://127.0.0.1:{free_port()}"
    for away in (
        connect_to(double, sandbox_url=nobody).write_files(
            made.sandbox_id, written=PAGE, deleted=[]
        ),
        connect_to(double, api_url=nobody, sandbox_url=nobody).get(made.sandbox_id),
    ):
        assert type(await error_of(away)) is ProviderUnreachableError


async def test_the_ends_of_many_are_told_by_a_list_and_none_is_taken_for_gone(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = [await create(provider, f"attempt-{number}") for number in range(30)]
    double.reset_counts()
    double.inject("slow", "get", seconds=0.2)
    asked = [*(each.sandbox_id for each in made), "inevermade"]
    ends = await asyncio.gather(*map(provider.end_time, asked), return_exceptions=True)
    assert ends[:-1] == [each.end_time for each in made]
    assert isinstance(ends[-1], SandboxGoneError)
    assert double.calls["list"] == 1
    assert double.calls["get"] <= FEW + 1


async def test_the_double_tells_how_many_calls_were_made_at_once(
    double: E2bDouble, provider: RemotePreviewProvider
) -> None:
    made = await create(provider)
    double.reset_counts()
    double.inject("slow", "get", seconds=0.2)
    await asyncio.gather(*(provider.get(made.sandbox_id) for _ in range(4)))
    assert double.calls == {"get": 4}
    assert double.most_in_flight == {made.sandbox_id: 4, "prj-a": 4}
    assert not +double.in_flight


async def test_the_double_runs_as_a_process_and_is_driven_over_http() -> None:
    with e2b_double_process() as url:
        chosen = {"e2b_api_key": API_KEY, "e2b_api_url": url, "e2b_sandbox_url": url}
        pool = HttpPool(Backoff())
        provider = open_e2b_provider(E2bSettings.model_validate(chosen), pool)
        made = await create(provider)
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            wrong = await client.put("/_double/faults", json=[{"kind": "mood"}])
            assert wrong.status_code == 400
            fault = {"kind": "error", "operation": "get", "times": 3}
            assert (await client.put("/_double/faults", json=[fault])).is_success
            assert type(await error_of(provider.get(made.sandbox_id))) is ProviderFailedError
            assert await provider.get(made.sandbox_id) == made
            shown = (await client.get("/_double")).json()
            assert [box["sandboxID"] for box in shown["sandboxes"]] == [made.sandbox_id]
            assert shown["sandboxes"][0]["files"] == [f"{SITE}/index.html"]
            assert (shown["calls"]["create"], shown["calls"]["get"]) == (1, 5)
            ended = await client.delete(f"/_double/sandboxes/{made.sandbox_id}")
            assert ended.status_code == 204
            with pytest.raises(SandboxGoneError):
                await provider.get(made.sandbox_id)
            assert (await client.post("/_double/reset-counts")).json()["calls"] == {}
        await pool.close()
