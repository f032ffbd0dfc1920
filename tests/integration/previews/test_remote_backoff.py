"""A preview's sandbox that refuses files or commands is left alone for a while, and it alone."""

from collections.abc import AsyncIterator

import pytest

from sandyard.previews.errors import ProviderFailedError, ProviderRateLimitedError
from sandyard.previews.providers.remote import RemotePreviewProvider
from sandyard.runtime.remote.backoff import Backoff
from tests.support.clocks import ManualClock
from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.previews.providers import connect_to, create, edit

REQUESTS = ("upload", "remove", "run")


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


def provider_with(double: E2bDouble, clock: ManualClock) -> RemotePreviewProvider:
    backoff = Backoff(first_sec=100, longest_sec=200, now=clock.now, chance=lambda: 1.0)
    return connect_to(double, backoff=backoff)


@pytest.mark.parametrize("operation", REQUESTS)
@pytest.mark.parametrize(
    ("kind", "error"), [("rate_limited", ProviderRateLimitedError), ("error", ProviderFailedError)]
)
async def test_it_is_sent_nothing_before_the_pause_is_over(
    double: E2bDouble, clock: ManualClock, operation: str, kind: str, error: type[Exception]
) -> None:
    provider = provider_with(double, clock)
    refusing, other = await create(provider, "one"), await create(provider, "two")
    double.inject(kind, operation, times=1)
    with pytest.raises(error):
        await edit(provider, refusing.sandbox_id)
    double.reset_counts()
    with pytest.raises(error):
        await edit(provider, refusing.sandbox_id)
    assert not any(double.calls[each] for each in REQUESTS)
    await edit(provider, other.sandbox_id)
    clock.advance(101)
    await edit(provider, refusing.sandbox_id)


@pytest.mark.parametrize("operation", REQUESTS)
async def test_what_was_refused_once_is_sent_again(double: E2bDouble, operation: str) -> None:
    provider = connect_to(double)
    made = await create(provider)
    double.inject("rate_limited", operation, times=1)
    await edit(provider, made.sandbox_id)
    assert list(double.boxes[0].files) == ["/home/user/preview/new.html"]


async def test_the_time_that_it_names_is_kept_and_told(
    double: E2bDouble, clock: ManualClock
) -> None:
    provider = provider_with(double, clock)
    made = await create(provider)
    double.inject("rate_limited", "upload", times=1, retry_after=33)
    with pytest.raises(ProviderRateLimitedError) as refused:
        await edit(provider, made.sandbox_id)
    assert refused.value.retry_after == 33
    clock.advance(34)
    await edit(provider, made.sandbox_id)
