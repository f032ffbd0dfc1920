"""Routes that are prepared when they are first called or described."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query
from httpx import ASGITransport, AsyncClient
from pydantic import BaseModel

from sandyard.kit.http.on_demand import OnDemandRoute


class _Answer(BaseModel):
    doubled: int


def _app() -> tuple[FastAPI, OnDemandRoute]:
    router = APIRouter(route_class=OnDemandRoute)

    @router.get("/twice/{name}", summary="Twice")
    async def get_twice(name: str, number: Annotated[int, Query(ge=1)]) -> _Answer:
        assert name == "n"
        return _Answer(doubled=2 * number)

    app = FastAPI()
    app.router.routes.extend(router.routes)
    route = router.routes[0]
    assert isinstance(route, OnDemandRoute)
    return app, route


def _calling(app: FastAPI) -> AsyncClient:
    return AsyncClient(transport=ASGITransport(app), base_url="http://here")


def _is_prepared(route: OnDemandRoute) -> bool:
    return "dependant" in vars(route)


async def test_a_route_is_found_without_being_prepared() -> None:
    app, route = _app()
    async with _calling(app) as client:
        assert (await client.get("/other")).status_code == 404
        assert (await client.post("/twice/n")).status_code == 405
    assert (route.name, route.methods, route.include_in_schema) == ("get_twice", {"GET"}, True)
    assert not _is_prepared(route)


async def test_the_first_call_prepares_it() -> None:
    app, route = _app()
    async with _calling(app) as client:
        assert (await client.get("/twice/n?number=4")).json() == {"doubled": 8}
        assert (await client.get("/twice/n?number=0")).status_code == 422
    assert _is_prepared(route)


def test_the_document_describes_it_whole() -> None:
    app, _ = _app()
    operation = app.openapi()["paths"]["/twice/{name}"]["get"]
    assert operation["summary"] == "Twice"
    assert [each["name"] for each in operation["parameters"]] == ["name", "number"]
    assert "200" in operation["responses"]


async def test_a_call_waits_for_another_thread_that_prepares_it() -> None:
    app, _ = _app()
    async with _calling(app) as client:
        describing = asyncio.create_task(asyncio.to_thread(app.openapi))
        calls = [client.get("/twice/n?number=4") for _ in range(8)]
        answers = await asyncio.gather(*calls)
        await describing
    assert {answer.status_code for answer in answers} == {200}


def test_what_no_route_has_is_missing_here_too() -> None:
    _, route = _app()
    assert not hasattr(route, "no_such_thing")
    assert _is_prepared(route)
