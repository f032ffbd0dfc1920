"""Many who ask for an end at once: few calls, and no answer older than its question."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import pytest

from sandyard.previews.errors import ProviderFailedError, SandboxGoneError
from sandyard.runtime.e2b.control import FEW, EndTimes

END = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = [f"box-{number}" for number in range(50)]


class Provider:
    """Answers when it is let, and counts."""

    def __init__(self, *pages: Mapping[str, datetime]) -> None:
        self.pages = list(pages)
        self.asked: list[str] = []
        self.pages_read = 0
        self.trouble: Exception | None = None
        self.answers = asyncio.Event()
        self.lists = asyncio.Event()
        self.lists.set()
        self.end_times = EndTimes(self.ask, self.read)

    async def ask(self, sandbox_id: str) -> datetime:
        self.asked.append(sandbox_id)
        await self.answers.wait()
        if not any(sandbox_id in page for page in self.pages):
            raise SandboxGoneError
        return END

    async def read(self) -> AsyncIterator[Mapping[str, datetime]]:
        for page in self.pages:
            await self.lists.wait()
            if self.trouble is not None:
                raise self.trouble
            self.pages_read += 1
            yield page

    def questions(self, names: list[str]) -> list[asyncio.Task[datetime]]:
        return [asyncio.create_task(self.end_times.get(name)) for name in names]


def page_of(names: list[str]) -> dict[str, datetime]:
    return dict.fromkeys(names, END)


async def test_a_few_are_asked_for_one_by_one() -> None:
    provider = Provider(page_of(NAMES))
    provider.answers.set()
    for name in NAMES[:10]:
        assert await provider.end_times.get(name) == END
    assert (provider.asked, provider.pages_read) == (NAMES[:10], 0)


async def test_many_share_a_list() -> None:
    provider = Provider(page_of(NAMES))
    questions = provider.questions(NAMES)
    assert await asyncio.gather(*questions[FEW:]) == [END] * (len(NAMES) - FEW)
    assert (provider.asked, provider.pages_read) == (NAMES[:FEW], 1)
    provider.answers.set()
    assert await asyncio.gather(*questions[:FEW]) == [END] * FEW


async def test_one_that_is_not_listed_is_asked_for_before_it_is_gone() -> None:
    listed, hidden = NAMES[:-1], NAMES[-1]
    provider = Provider(page_of(listed))
    questions = provider.questions([*NAMES, "gone"])
    await asyncio.gather(*questions[FEW:-2])
    provider.pages.append({hidden: END})
    provider.answers.set()
    assert await questions[-2] == END
    with pytest.raises(SandboxGoneError):
        await questions[-1]
    assert provider.asked == [*NAMES[:FEW], hidden, "gone"]


async def test_who_comes_while_a_list_is_read_waits_for_the_next_one() -> None:
    provider = Provider(page_of(NAMES))
    provider.lists.clear()
    early = provider.questions(NAMES[: FEW + 1])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = provider.questions(["new"])
    await asyncio.sleep(0)
    provider.pages[0] = page_of([*NAMES, "new"])
    provider.lists.set()
    assert await asyncio.gather(*late, early[-1]) == [END, END]
    assert provider.pages_read == 2


async def test_who_comes_just_after_the_first_shares_the_list() -> None:
    provider = Provider(page_of(NAMES))
    provider.end_times = EndTimes(provider.ask, provider.read, gather_sec=0.5)
    early = provider.questions(NAMES[: FEW + 1])
    await asyncio.sleep(0.01)
    late = provider.questions(NAMES[FEW + 1 :])
    assert await asyncio.gather(early[-1], *late) == [END] * (len(NAMES) - FEW)
    assert provider.pages_read == 1
    provider.answers.set()
    await asyncio.gather(*early)


async def test_a_list_is_read_no_further_than_pays() -> None:
    provider = Provider(*({f"other-{number}": END} for number in range(100)), page_of(NAMES))
    provider.answers.set()
    assert await asyncio.gather(*provider.questions(NAMES)) == [END] * len(NAMES)
    assert provider.pages_read <= 1 + len(NAMES) // 10
    assert sorted(provider.asked) == sorted(NAMES)


async def test_a_list_that_fails_is_trouble_for_all_who_wait_for_it() -> None:
    provider = Provider(page_of(NAMES))
    provider.trouble = ProviderFailedError()
    questions = provider.questions(NAMES)
    outcomes = await asyncio.gather(*questions[FEW:], return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ProviderFailedError}
    provider.answers.set()
    assert await asyncio.gather(*questions[:FEW]) == [END] * FEW
