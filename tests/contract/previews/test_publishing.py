"""A version of a project at an address of its own: what it shows, and how long it stays."""

from typing import Any

import httpx
import pytest

from sandyard.previews.jobs import EndReport
from sandyard.previews.stores.tables import past_contents, published_files
from tests.contract.previews.test_versions import count_stored
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi

SITE = {
    "dist/index.html": "<h1>Start</h1>",
    "dist/about.html": "About",
    "dist/docs/index.html": "Docs",
    "dist/app.js": "let x = 'ä'",
    "src/main.ts": "private",
}


async def publish(api: PreviewApi, caller: Caller, project: str, **body: Any) -> str:
    found = await api.post(f"/projects/{project}/publish", caller, body)
    return str(found["url"])


async def page(api: PreviewApi, url: str, path: str = "", **options: Any) -> httpx.Response:
    return await api.client.get(url + path, **options)


async def test_everybody_sees_the_files_below_the_root_at_a_stable_address(
    api: PreviewApi,
) -> None:
    ann = await api.account()
    project = await api.project(ann, **SITE)
    url = await publish(api, ann, project, root="dist")
    assert f"pub-{project.removeprefix('prj-')}." in url
    for path, text in (("", "Start"), ("about", "About"), ("docs/", "Docs"), ("docs", "Docs")):
        shown = await page(api, url, path)
        assert (shown.status_code, text in shown.text) == (200, True), path
        assert shown.headers["content-type"] == "text/html; charset=utf-8"
    script = await page(api, url, "app.js")
    assert script.text == SITE["dist/app.js"]
    again = await page(api, url, "app.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await api.client.head(url + "app.js")
    assert (head.content, head.headers["content-length"]) == (b"", "12")
    for path in ("src/main.ts", "../src/main.ts", "%2e%2e/src/main.ts", "dist/app.js", "a%00b"):
        assert (await page(api, url, path)).status_code == 404, path
    assert (await api.client.post(url)).status_code == 405
    assert await publish(api, ann, project, root="src") == url
    other = await page(api, url, "main.ts", headers={"If-None-Match": script.headers["etag"]})
    assert (other.status_code, other.text) == (200, "private")


async def test_it_stays_as_it_was_until_it_is_published_again_or_unpublished(
    api: PreviewApi,
) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"index.html": "first"})
    url = await publish(api, ann, project)
    await api.put_files(ann, project, {"index.html": "draft"})
    await api.call("DELETE", f"/projects/{project}/versions?keep=1", ann)
    assert (await page(api, url)).text == "first"
    assert (await api.get(f"/projects/{project}/publish", ann))["version"] == 1
    assert await publish(api, ann, project, version=2) == url
    assert (await page(api, url)).text == "draft"
    for _ in range(2):
        gone = await api.call("DELETE", f"/projects/{project}/publish", ann)
        assert gone.status_code == 204
    assert code_of(await page(api, url)) == (404, "NOT_PUBLISHED")
    missing = await api.call("GET", f"/projects/{project}/publish", ann)
    assert code_of(missing) == (404, "NOT_PUBLISHED")


async def test_client_side_routes_get_the_fallback_and_other_paths_a_page_of_404(
    api: PreviewApi,
) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"index.html": "app", "a.js": "1"})
    url = await publish(api, ann, project)
    missing = await page(api, url, "users/7")
    assert (missing.status_code, "Not found" in missing.text) == (404, True)
    await publish(api, ann, project, fallback="index.html")
    route = await page(api, url, "users/7?tab=1")
    assert (route.status_code, route.text) == (200, "app")
    assert (await page(api, url, "b.js")).status_code == 404, "a missing file is no route"
    await api.put_files(ann, project, {"404.html": "our own"})
    await publish(api, ann, project)
    own = await page(api, url, "users/7")
    assert (own.status_code, own.text) == (404, "our own")
    await api.put_files(ann, project, {"200.html": "by its name"})
    await publish(api, ann, project)
    assert (await page(api, url, "users/7")).text == "by its name"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"version": 9}, (404, "VERSION_NOT_FOUND")),
        ({"root": "build"}, (400, "PUBLISHED_PATH")),
        ({"fallback": "app.html"}, (400, "PUBLISHED_PATH")),
    ],
)
async def test_what_is_not_there_is_not_published(
    api: PreviewApi, body: dict[str, Any], code: tuple[int, str]
) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"index.html": "x"})
    refused = await api.call("POST", f"/projects/{project}/publish", ann, json=body)
    assert code_of(refused) == code


async def test_only_the_owner_publishes(api: PreviewApi) -> None:
    ann, bob = await api.account(), await api.account()
    project = await api.project(ann, **{"index.html": "x"})
    for method in ("GET", "POST", "DELETE"):
        body: dict[str, Any] | None = {} if method == "POST" else None
        refused = await api.call(method, f"/projects/{project}/publish", bob, json=body)
        assert refused.status_code == 404, method


async def test_a_deleted_project_is_unpublished_at_once_and_its_files_go(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"index.html": "x"})
    url = await publish(api, ann, project)
    assert (await page(api, url)).status_code == 200
    assert (await api.call("DELETE", f"/projects/{project}", ann)).status_code == 204
    assert code_of(await page(api, url)) == (404, "NOT_PUBLISHED")
    [job] = [job for job in api.previews.schedule if job.name == "deleted-projects"]
    assert await api.previews.runner.run(job) == EndReport(removed=1)
    for table in (published_files, past_contents):
        left = await count_stored(api, table)
        assert left == 0


async def test_what_is_published_counts_in_the_quota(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"index.html": "x" * 100})
    await publish(api, ann, project)
    quotas = {each["resource"]: each for each in (await api.get("/me/quota", ann))["quotas"]}
    assert quotas["file_bytes"]["in_use"] == 200
