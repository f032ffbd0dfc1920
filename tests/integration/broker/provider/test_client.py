"""The client of the provider, in both dialects, against a healthy one."""

import logging
from urllib.parse import unquote

import pytest
from starlette.responses import JSONResponse, Response

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.tools.provider.simulator import Simulator
from tests.integration.broker.provider.calls import DIALECTS, EMPTY, account, page, query
from tests.integration.conftest import Answers, Connect, Serve, status


class TestList:
    @pytest.mark.parametrize(
        ("sandboxes", "pages"), [(0, 1), (1, 1), (200, 1), (201, 2), (400, 2), (450, 3)]
    )
    async def test_the_generic_dialect_goes_through_all_pages(
        self,
        simulator: Simulator,
        simulator_url: str,
        connect: Connect,
        sandboxes: int,
        pages: int,
    ) -> None:
        simulator.create(sandboxes)
        listed = await connect(simulator_url).list_sandboxes()
        assert list(listed) == [
            Listed(external_id=entry["id"], name=entry["name"])
            for entry in simulator.sandboxes.values()
        ]
        assert simulator.calls == {"list": pages, "delete": 0}

    async def test_the_generic_dialect_asks_for_200_and_sends_the_cursor_back_as_it_came(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(page({"id": "a", "name": "A"}, cursor="x/+ &=ü"), page({"id": "b"}))
        await connect(await serve(app)).list_sandboxes()
        assert [request.url.path for request in app.requests] == ["/api/sandbox", "/api/sandbox"]
        assert [query(request) for request in app.requests] == [
            {"limit": "200"},
            {"limit": "200", "cursor": "x/+ &=ü"},
        ]

    async def test_an_empty_page_in_the_middle_is_not_the_end(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(page({"id": "a"}, cursor="1"), page(cursor="2"), page({"id": "b"}))
        listed = await connect(await serve(app)).list_sandboxes()
        assert [entry.external_id for entry in listed] == ["a", "b"]

    async def test_the_infoblox_dialect_lists_with_one_call(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.create(450)
        listed = await connect(simulator_url, dialect="infoblox").list_sandboxes()
        assert list(listed) == [
            Listed(external_id=f"identity/accounts/{entry['id']}", name=entry["name"])
            for entry in simulator.sandboxes.values()
        ]
        assert simulator.calls["list"] == 1

    async def test_the_infoblox_dialect_keeps_active_sandbox_accounts_alone(
        self, serve: Serve, connect: Connect
    ) -> None:
        accounts = [
            account("kept"),
            account("standard", account_type="standard"),
            account("trial", account_type="trial"),
            account("loud", account_type="SANDBOX"),
            account("deleted", state="deleted"),
            account("disabled", state="disabled"),
            account("nothing", state=None),
            account("both", account_type="standard", state="disabled"),
            account("kept-too"),
        ]
        app = Answers(JSONResponse({"results": accounts}))
        listed = await connect(await serve(app), dialect="infoblox").list_sandboxes()
        assert list(listed) == [
            Listed(external_id="identity/accounts/kept", name="name-kept"),
            Listed(external_id="identity/accounts/kept-too", name="name-kept-too"),
        ]
        assert app.requests[0].url.path == "/current_user/accounts"

    async def test_an_entry_without_a_name_is_called_by_its_id(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(page({"id": "a"}, {"id": "b", "name": None}, {"id": "c", "name": ""}))
        listed = await connect(await serve(app)).list_sandboxes()
        assert [entry.name for entry in listed] == ["a", "b", "c"]

    async def test_a_name_is_freed_of_what_no_engine_stores(
        self, serve: Serve, connect: Connect
    ) -> None:
        answer = (
            rb'{"sandboxes": [{"id": "a", "name": "x\u0000y"}, {"id": "b", "name": "z\ud800"}]}'
        )
        app = Answers(Response(answer, media_type="application/json"))
        listed = await connect(await serve(app)).list_sandboxes()
        assert [entry.external_id for entry in listed] == ["a", "b"]
        assert listed[0].name == "xy"
        assert listed[1].name.encode().startswith(b"z")


class TestCredential:
    @pytest.mark.parametrize(("dialect", "scheme"), [("generic", "Bearer"), ("infoblox", "Token")])
    async def test_each_dialect_has_its_scheme(
        self, serve: Serve, connect: Connect, dialect: str, scheme: str
    ) -> None:
        app = Answers(EMPTY[dialect], status(204))
        provider = connect(await serve(app), dialect=dialect, token="s3cret")
        await provider.list_sandboxes()
        await provider.delete_sandbox("some-id")
        sent = [request.headers["authorization"] for request in app.requests]
        assert sent == [f"{scheme} s3cret"] * 2

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_without_a_token_none_is_sent(
        self, serve: Serve, connect: Connect, dialect: str
    ) -> None:
        app = Answers(EMPTY[dialect])
        await connect(await serve(app), dialect=dialect).list_sandboxes()
        assert "authorization" not in app.requests[0].headers

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_the_right_token_opens(
        self, simulator: Simulator, simulator_url: str, connect: Connect, dialect: str
    ) -> None:
        simulator.token = "right"
        simulator.create(2)
        provider = connect(simulator_url, dialect=dialect, token="right")
        listed = await provider.list_sandboxes()
        await provider.delete_sandbox(listed[0].external_id)
        assert len(simulator.sandboxes) == 1

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_a_wrong_token_is_an_outage_that_is_not_asked_again_and_not_shown(
        self,
        simulator: Simulator,
        simulator_url: str,
        connect: Connect,
        caplog: pytest.LogCaptureFixture,
        dialect: str,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        simulator.token = "right"
        simulator.create(1)
        provider = connect(simulator_url, dialect=dialect, token="wr0ng-s3cret", attempts=3)
        with pytest.raises(ProviderUnavailableError) as refused:
            await provider.list_sandboxes()
        with pytest.raises(ProviderUnavailableError):
            await provider.delete_sandbox(next(iter(simulator.sandboxes)))
        assert simulator.calls == {"list": 1, "delete": 1}
        assert len(simulator.sandboxes) == 1
        assert "401" in (refused.value.reason or "")
        shown = [refused.value.message, refused.value.reason or "", caplog.text]
        assert not any("wr0ng-s3cret" in text for text in shown)


class TestDelete:
    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_what_is_deleted_is_gone_and_gone_twice_is_no_error(
        self, simulator: Simulator, simulator_url: str, connect: Connect, dialect: str
    ) -> None:
        simulator.create(3)
        provider = connect(simulator_url, dialect=dialect, attempts=3)
        doomed, *kept = await provider.list_sandboxes()
        await provider.delete_sandbox(doomed.external_id)
        await provider.delete_sandbox(doomed.external_id)
        assert list(await provider.list_sandboxes()) == kept
        assert simulator.calls["delete"] == 2

    @pytest.mark.parametrize("code", [200, 202, 204, 404])
    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_every_2xx_and_404_mean_gone(
        self, serve: Serve, connect: Connect, dialect: str, code: int
    ) -> None:
        app = Answers(status(code))
        await connect(await serve(app), dialect=dialect, attempts=3).delete_sandbox("some-id")
        assert [request.method for request in app.requests] == ["DELETE"]

    @pytest.mark.parametrize(
        ("dialect", "external_id", "path"),
        [
            ("generic", "ext-xyz-456", "/api/sandbox/ext-xyz-456"),
            ("generic", "a/b?c#d e%2F", "/api/sandbox/a%2Fb%3Fc%23d%20e%252F"),
            ("infoblox", "identity/accounts/some-uuid", "/sandbox/accounts/some-uuid"),
            ("infoblox", "some-uuid", "/sandbox/accounts/some-uuid"),
        ],
    )
    async def test_the_id_is_one_segment_of_the_path(
        self, serve: Serve, connect: Connect, dialect: str, external_id: str, path: str
    ) -> None:
        app = Answers(status(204))
        await connect(await serve(app), dialect=dialect).delete_sandbox(external_id)
        assert app.requests[0].scope["path"] == unquote(path)
        assert app.requests[0].scope["raw_path"] == path.encode()
        assert app.requests[0].url.query == ""
