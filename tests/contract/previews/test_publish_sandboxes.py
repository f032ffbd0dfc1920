"""Sandboxes that build or run what is published: each ends when nothing names it, not before."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sandyard.bootstrap.publish_sandboxes import AccountSandboxes
from sandyard.kit.errors import UnavailableError
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import NewSandbox
from sandyard.previews.errors import NotPublishedError
from sandyard.previews.files import Publication
from sandyard.previews.ports import Application
from sandyard.previews.publishing.attempts import LONGEST
from sandyard.previews.publishing.ports import PublishSandbox
from sandyard.previews.publishing.service import Publishing, PublishingReport
from tests.support.platform.in_process import Caller
from tests.support.previews.in_process import PreviewApi

LABEL = "sandyard-publish"
RUNNING = Application("running", "node")


@dataclass(frozen=True, slots=True)
class NotStarted(AccountSandboxes):
    """The account's sandboxes as they are recorded; their programs answer as the test says."""

    answers: list[Application | Exception] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)

    async def start(self, project_id: str, attempt: Any, files: Any, **by: str) -> str:  # noqa: ARG002
        new = NewSandbox(
            name=attempt.id,
            template_id=(await self._template(by["account_id"])).template_id,
            project_id=project_id,
            description=None,
            cpu_spec=1,
            memory_spec=1,
            max_running_seconds=60,
            metadata={LABEL: f"{project_id} {attempt.id}"},
        )
        principal = Principal(by["account_id"], Role.USER)
        made = await self.platform.wired.sandboxes.create(new, by=principal)
        return made.sandbox.sandbox_id

    async def application(self, sandbox_id: str, *, account_id: str) -> Application | None:  # noqa: ARG002

        found = self.answers.pop(0) if self.answers else RUNNING
        if isinstance(found, Exception):
            raise found
        return found

    async def end(self, sandbox_id: str, *, account_id: str, actor: str) -> None:
        if sandbox_id in self.elsewhere:
            raise SandboxElsewhereError("a")
        await AccountSandboxes.end(self, sandbox_id, account_id=account_id, actor=actor)


@dataclass(slots=True)
class Setup:
    api: PreviewApi
    publishing: Publishing
    sandboxes: NotStarted
    caller: Caller
    project: str

    async def run(self) -> Publication:
        await self.begin()
        await self.publishing.background.finish()
        return await self.publishing.get(self.project, account_id=self.caller.account_id)

    async def begin(self) -> None:
        await self.publishing.publish_with_sandbox(
            self.project, version=None, mode="run", root="", fallback=None, **self.by
        )

    async def unpublish(self) -> None:
        await self.publishing.unpublish(self.project, **self.by)

    async def kept(self) -> Sequence[str]:
        found = (await self.api.get("/sandboxes", self.caller))["sandboxes"]
        return sorted(each["sandbox_id"] for each in found if each["status"] != "recycled")

    async def run_job(self) -> Any:
        [job] = [job for job in self.api.previews.schedule if job.plain_name == "publishing"]
        return await self.api.previews.runner.run(job)

    @property
    def by(self) -> dict[str, str]:
        return {"account_id": self.caller.account_id, "actor": "test"}


@pytest.fixture
async def setup(api: PreviewApi) -> AsyncIterator[Setup]:
    ann = await api.account()
    project = await api.project(ann, **{"package.json": "{}"})
    sandboxes = NotStarted(api.part, 1)
    own = api.previews.publishing
    publishing = replace(own, attempts=replace(own.attempts, sandboxes=sandboxes))
    yield Setup(api, publishing, sandboxes, ann, project)
    await publishing.background.finish()


async def test_what_was_just_published_stays_if_the_one_before_it_cannot_be_ended(
    setup: Setup,
) -> None:
    first = await setup.run()
    setup.sandboxes.elsewhere.add(str(first.sandbox_id))
    second = await setup.run()
    _, attempt = await setup.publishing.find(setup.project, account_id=setup.caller.account_id)
    assert (second.sandbox_id != first.sandbox_id, attempt) == (True, None)
    assert await setup.kept() == sorted([str(first.sandbox_id), str(second.sandbox_id)])
    assert await setup.run_job() == PublishingReport(ended=1)
    assert await setup.kept() == [second.sandbox_id]
    assert await setup.run_job() == PublishingReport(ended=0)


async def test_what_could_not_be_ended_when_it_was_unpublished_is_ended_by_the_job(
    setup: Setup,
) -> None:
    shown = await setup.run()
    setup.sandboxes.elsewhere.add(str(shown.sandbox_id))
    for _ in range(2):
        await setup.unpublish()
    assert await setup.kept() == [shown.sandbox_id]
    assert await setup.run_job() == PublishingReport(ended=1)
    assert await setup.kept() == []


async def test_the_sandbox_of_a_server_that_ended_while_it_published_is_ended_after_its_time(
    setup: Setup,
) -> None:
    attempts = setup.publishing.attempts
    attempt = await attempts.begin(setup.project, 1, "run")
    made = await setup.sandboxes.start(setup.project, attempt, {}, **setup.by)
    assert await setup.sandboxes.list() == [
        PublishSandbox(made, setup.caller.account_id, setup.project, attempt.id)
    ]
    assert await setup.run_job() == PublishingReport(ended=0)
    assert await setup.kept() == [made]
    setup.api.clock.advance(LONGEST.total_seconds() + 180)
    assert await setup.run_job() == PublishingReport(ended=1)
    assert await setup.kept() == []


async def test_an_attempt_that_is_called_off_at_the_last_moment_publishes_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, apply = setup.publishing.store, setup.publishing.store.apply

    async def apply_later(*change: Any, **more: Any) -> bool:
        monkeypatch.undo()
        await setup.unpublish()
        return await apply(*change, **more)

    monkeypatch.setattr(store, "apply", apply_later)
    with pytest.raises(NotPublishedError):
        await setup.run()
    assert await setup.kept() == []


async def test_an_answer_that_fails_in_passing_does_not_end_an_attempt(setup: Setup) -> None:
    setup.sandboxes.answers.extend([UnavailableError(), RUNNING])
    assert (await setup.run()).sandbox_id is not None
