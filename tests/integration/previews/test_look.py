"""A browser looks at a preview: what it sees, what it reaches, and who may ask."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from sandyard.previews.errors import BrowserFailedError
from sandyard.previews.look import chromium
from sandyard.previews.look.chromium import Chromium
from sandyard.previews.look.model import Viewport
from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.previews.providers import local_provider
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all

PNG = b"\x89PNG\r\n"
PAGE = """<title>Hello</title><script>
console.warn("look", 1);
fetch("/missing");
const reached = (url) => fetch(url, {mode: "no-cors"})
  .then(() => console.log("reached " + url), () => {});
reached("http://127.0.0.1:%d/"); reached("http://localhost:%d/");
</script>"""


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime")
    yield runtime
    await end_all(runtime)


async def look(api: PreviewApi, caller: Caller, project: str, **body: object) -> httpx.Response:
    return await api.call("POST", f"/projects/{project}/sandbox/look", caller, json=body)


async def test_it_sees_the_page_and_reaches_nothing_else_one_at_a_time(
    tmp_path: Path, double: E2bDouble, runtime: LocalRuntime
) -> None:
    port = int(double.url.rpartition(":")[2])  # something on this machine's loopback
    async with preview_api(None, tmp_path, double, provider=local_provider(runtime)) as api:
        ann = await api.account()
        project = await api.project(ann, **{"index.html": PAGE % (port, port)})
        assert code_of(await look(api, ann, project)) == (409, "PREVIEW_NOT_RUNNING")
        await api.sync(ann, project)
        sent = [look(api, ann, project, width=400, height=300) for _ in range(2)]
        answers = {each.status_code: each for each in await asyncio.gather(*sent)}
    assert code_of(answers.pop(429)) == (429, "LOOKS_LIMIT_EXCEEDED")
    seen = answers[200].json()
    assert (seen["title"], seen["is_complete"]) == ("Hello", True)
    assert base64.b64decode(seen["screenshot"]).startswith(PNG)
    assert seen["console"] == [{"level": "warning", "text": "look 1"}]
    failed = {urlsplit(each["url"]).netloc: each["status"] for each in seen["failed_requests"]}
    assert failed[f"127.0.0.1:{port}"] is failed[f"localhost:{port}"] is None
    missing = [each["status"] for each in seen["failed_requests"] if "/missing" in each["url"]]
    assert missing == [404]
    assert not double.calls


async def test_without_a_browser_it_is_said(tmp_path: Path, double: E2bDouble) -> None:
    async with preview_api(None, tmp_path, double, chromium="no-such-browser") as api:
        ann = await api.account()
        project = await api.project(ann)
        assert code_of(await look(api, ann, project)) == (501, "BROWSER_MISSING")
        for body in ({"width": 9999}, {"path": "a"}, {"script": "x"}):
            assert (await look(api, ann, project, **body)).status_code == 400


async def test_a_page_that_stores_too_much_ends_its_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chromium, "_MOST_STORED_BYTES", 1)
    page = "data:text/html,<script>while (true) {}</script>"
    with pytest.raises(BrowserFailedError):
        await Chromium(None).look(page, hosts="MAP * ~NOTFOUND", viewport=Viewport())


@pytest.mark.torture
async def test_a_page_that_never_rests_is_told_as_far_as_it_came() -> None:
    page = "data:text/html,<script>console.log('begun'); while (true) {}</script>"
    seen = await Chromium(None).look(page, hosts="MAP * ~NOTFOUND", viewport=Viewport())
    assert not seen.is_complete
    assert [message.text for message in seen.console] == ["begun"]
