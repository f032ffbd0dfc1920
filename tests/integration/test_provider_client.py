"""The client of the provider, in both dialects, against healthy and sick providers on real HTTP."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from sandyard.broker.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.broker.model import Listed
from sandyard.broker.provider.client import HttpProvider
from sandyard.broker.provider.simulator import Faults, Simulator
from sandyard.entrypoints.server import free_port
from tests.integration.conftest import Answers, Connect, Serve, eventually, silence, status

DIALECTS = ("generic", "infoblox")
EMPTY = {
    "generic": JSONResponse({"sandboxes": [], "next_cursor": None}),
    "infoblox": JSONResponse({"results": []}),
}
DEADLINE_SEC = 10

Call = Callable[[HttpProvider], Awaitable[Any]]


async def list_all(provider: HttpProvider) -> None:
    await provider.list_sandboxes()


async def delete_one(provider: HttpProvider) -> None:
    await provider.delete_sandbox("some-id")


def page(*entries: Any, cursor: Any = None) -> Response:
    return JSONResponse({"sandboxes": list(entries), "next_cursor": cursor})


def account(identity: str, **changes: Any) -> dict[str, Any]:
    entry = {
        "id": f"identity/accounts/{identity}",
        "csp_id": f"csp-{identity}",
        "name": f"name-{identity}",
        "account_type": "sandbox",
        "state": "active",
        "created_at": "2026-01-01T00:00:00Z",
    }
    return entry | changes


def query(request: Request) -> dict[str, str]:
    return dict(request.query_params)


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


class TestTrouble:
    @pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_a_passing_fault_is_tried_again(
        self, serve: Serve, connect: Connect, call: Call, code: int
    ) -> None:
        app = Answers(status(code), status(code), EMPTY["generic"])
        await call(connect(await serve(app), attempts=3))
        assert len(app.requests) == 3

    @pytest.mark.parametrize("attempts", [1, 2, 4])
    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_a_fault_that_stays_is_tried_as_often_as_the_policy_says(
        self, serve: Serve, connect: Connect, call: Call, attempts: int
    ) -> None:
        app = Answers(status(500))
        with pytest.raises(ProviderUnavailableError) as failed:
            await call(connect(await serve(app), attempts=attempts))
        assert len(app.requests) == attempts
        assert "500" in (failed.value.reason or "")

    @pytest.mark.parametrize("code", [400, 401, 403, 409, 422])
    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_a_refusal_is_not_tried_again(
        self, serve: Serve, connect: Connect, call: Call, code: int
    ) -> None:
        app = Answers(status(code))
        with pytest.raises(ProviderUnavailableError):
            await call(connect(await serve(app), attempts=3))
        assert len(app.requests) == 1

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_a_list_that_is_not_found_is_no_empty_list(
        self, serve: Serve, connect: Connect, dialect: str
    ) -> None:
        app = Answers(status(404))
        with pytest.raises(ProviderUnavailableError):
            await connect(await serve(app), dialect=dialect, attempts=3).list_sandboxes()
        assert len(app.requests) == 1

    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_a_redirection_is_not_followed_with_our_token(
        self, serve: Serve, connect: Connect, call: Call
    ) -> None:
        elsewhere = Answers(EMPTY["generic"])
        app = Answers(RedirectResponse(await serve(elsewhere)))
        with pytest.raises(ProviderUnavailableError):
            await call(connect(await serve(app), token="s3cret", attempts=3))
        assert (len(app.requests), len(elsewhere.requests)) == (1, 0)

    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_nobody_listening_is_an_outage(self, connect: Connect, call: Call) -> None:
        provider = connect(f"http://127.0.0.1:{free_port()}", attempts=3)
        with pytest.raises(ProviderUnavailableError) as failed:
            await call(provider)
        assert "ConnectError" in (failed.value.reason or "")

    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_silence_is_given_up_after_the_read_time_out_of_each_attempt(
        self, serve: Serve, connect: Connect, call: Call
    ) -> None:
        app = Answers(silence)
        provider = connect(await serve(app), read_timeout_sec=0.1, attempts=2)
        async with asyncio.timeout(DEADLINE_SEC):
            with pytest.raises(ProviderUnavailableError) as failed:
                await call(provider)
        assert len(app.requests) == 2
        assert "ReadTimeout" in (failed.value.reason or "")

    async def test_an_answer_after_a_time_out_is_as_good_as_any(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence, page({"id": "a", "name": "A"}))
        provider = connect(await serve(app), read_timeout_sec=0.3, attempts=10)
        assert list(await provider.list_sandboxes()) == [Listed("a", "A")]

    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_an_answer_that_ends_midway_is_tried_again_and_then_an_outage(
        self, connect: Connect, call: Call
    ) -> None:
        calls = 0

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal calls
            calls += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"sandboxes": [')
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(ProviderUnavailableError):
                await call(connect(f"http://127.0.0.1:{port}", attempts=2))
        assert calls == 2

    @pytest.mark.parametrize("call", [list_all, delete_one])
    async def test_an_answer_that_cannot_be_unpacked_is_an_outage(
        self, serve: Serve, connect: Connect, call: Call
    ) -> None:
        app = Answers(Response(b"this is no gzip", headers={"content-encoding": "gzip"}))
        with pytest.raises(ProviderUnavailableError):
            await call(connect(await serve(app)))

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"<html>maintenance</html>", b"\xff\xfe\xfa", b"[" * 100_000],
        ids=["nothing", "cut off", "html", "no text", "too deep"],
    )
    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_an_answer_that_is_not_json_is_an_outage(
        self, serve: Serve, connect: Connect, dialect: str, body: bytes
    ) -> None:
        app = Answers(Response(body, media_type="application/json"))
        with pytest.raises(ProviderUnavailableError) as failed:
            await connect(await serve(app), dialect=dialect, attempts=3).list_sandboxes()
        assert "JSON" in (failed.value.reason or "")

    @pytest.mark.parametrize(
        ("dialect", "body"),
        [
            *((dialect, body) for dialect in DIALECTS for body in ("[]", "null", '"x"', "7", "{}")),
            ("generic", '{"sandboxes": null}'),
            ("generic", '{"sandboxes": {}}'),
            ("generic", '{"sandboxes": [7]}'),
            ("generic", '{"sandboxes": [null]}'),
            ("generic", '{"sandboxes": [{"name": "no id"}]}'),
            ("generic", '{"sandboxes": [{"id": 7}]}'),
            ("generic", '{"sandboxes": [{"id": "good"}, {"id": null}]}'),
            ("generic", '{"sandboxes": [{"id": ""}]}'),
            ("generic", r'{"sandboxes": [{"id": "nul\u0000"}]}'),
            ("generic", r'{"sandboxes": [{"id": "half a pair \ud800"}]}'),
            ("generic", '{"sandboxes": [], "next_cursor": {"page": 2}}'),
            ("generic", '{"sandboxes": [], "next_cursor": ["2"]}'),
            ("infoblox", '{"results": null}'),
            ("infoblox", '{"results": "none"}'),
            ("infoblox", '{"results": [null]}'),
            ("infoblox", '{"results": [{"id": "x"}]}'),
            ("infoblox", '{"results": [{"id": 7, "account_type": "sandbox", "state": "active"}]}'),
            ("infoblox", '{"results": [{"id": "", "account_type": "sandbox", "state": "active"}]}'),
        ],
    )
    async def test_json_of_another_shape_is_an_outage(
        self, serve: Serve, connect: Connect, dialect: str, body: str
    ) -> None:
        app = Answers(Response(body, media_type="application/json"))
        async with asyncio.timeout(DEADLINE_SEC):
            with pytest.raises(ProviderUnavailableError):
                await connect(await serve(app), dialect=dialect).list_sandboxes()

    async def test_a_list_that_breaks_off_is_an_error_and_no_part_of_a_list(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.create(450)
        simulator.faults = Faults(break_after_page=1)
        with pytest.raises(ProviderUnavailableError):
            await connect(simulator_url, attempts=2).list_sandboxes()
        assert simulator.calls["list"] == 1 + 2

    @pytest.mark.parametrize(
        "second",
        [status(404), status(400), Response(b"{"), JSONResponse({}), page({"id": 7})],
        ids=["404", "400", "no json", "another shape", "an entry of another shape"],
    )
    async def test_whatever_is_wrong_with_the_second_page_there_is_no_list(
        self, serve: Serve, connect: Connect, second: ASGIApp
    ) -> None:
        app = Answers(page({"id": "a"}, cursor="2"), second)
        with pytest.raises(ProviderUnavailableError):
            await connect(await serve(app)).list_sandboxes()
        assert len(app.requests) == 2

    @pytest.mark.parametrize("entries", [[], [{"id": "a"}]], ids=["empty pages", "same page"])
    async def test_a_list_that_goes_in_circles_is_an_error_soon(
        self, serve: Serve, connect: Connect, entries: list[dict[str, str]]
    ) -> None:
        app = Answers(page(*entries, cursor="again"))
        async with asyncio.timeout(DEADLINE_SEC):
            with pytest.raises(ProviderUnavailableError) as failed:
                await connect(await serve(app)).list_sandboxes()
        assert "does not end" in (failed.value.reason or "")


class TestCircuit:
    @pytest.mark.parametrize("first", [list_all, delete_one])
    @pytest.mark.parametrize("second", [list_all, delete_one])
    async def test_opens_at_the_threshold_and_then_nobody_is_asked(
        self,
        simulator: Simulator,
        simulator_url: str,
        connect: Connect,
        caplog: pytest.LogCaptureFixture,
        first: Call,
        second: Call,
    ) -> None:
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=3, circuit_timeout_sec=3600)
        for _ in range(3):
            assert not await provider.circuit_is_open()
            with pytest.raises(ProviderUnavailableError) as failed:
                await first(provider)
            assert not isinstance(failed.value, CircuitOpenError)
        assert await provider.circuit_is_open()
        simulator.faults = Faults()
        for _ in range(5):
            with pytest.raises(CircuitOpenError) as refused:
                await second(provider)
            assert refused.value.retry_after == 3600
        assert sum(simulator.calls.values()) == 3
        assert "provider circuit is now opened" in caplog.text

    async def test_opens_for_time_outs_and_for_a_provider_that_is_not_there(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence)
        for url in (await serve(app), f"http://127.0.0.1:{free_port()}"):
            provider = connect(url, read_timeout_sec=0.05, circuit_threshold=2)
            for _ in range(2):
                with pytest.raises(ProviderUnavailableError):
                    await provider.list_sandboxes()
            with pytest.raises(CircuitOpenError):
                await provider.list_sandboxes()
        assert len(app.requests) == 2

    async def test_opens_in_the_middle_of_one_call_which_then_has_failed_and_asks_no_more(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(status(500))
        provider = connect(await serve(app), attempts=10, circuit_threshold=3)
        with pytest.raises(ProviderUnavailableError) as failed:
            await provider.list_sandboxes()
        assert len(app.requests) == 3
        assert await provider.circuit_is_open()
        # CircuitOpenError says that nobody was asked, and here somebody was.
        assert not isinstance(failed.value, CircuitOpenError)

    async def test_failures_that_are_not_in_a_row_do_not_open_it(
        self, serve: Serve, connect: Connect
    ) -> None:
        bad, good = status(500), EMPTY["generic"]
        app = Answers(bad, bad, good, bad, bad, good)
        provider = connect(await serve(app), circuit_threshold=3)
        for answer in (bad, bad, good, bad, bad):
            if answer is good:
                await provider.list_sandboxes()
            else:
                with pytest.raises(ProviderUnavailableError):
                    await provider.list_sandboxes()
        await provider.list_sandboxes()
        assert len(app.requests) == 6

    async def test_sandboxes_that_are_gone_already_are_no_failures(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        provider = connect(simulator_url, circuit_threshold=1)
        for number in range(5):
            await provider.delete_sandbox(f"gone-{number}")
        assert not await provider.circuit_is_open()
        assert simulator.calls["delete"] == 5

    async def test_a_call_that_its_caller_broke_off_is_no_failure_of_the_provider(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence, silence, silence, EMPTY["generic"])
        provider = connect(await serve(app), circuit_threshold=3)
        calls = [asyncio.create_task(provider.delete_sandbox(str(n))) for n in range(3)]
        await eventually(lambda: len(app.requests) == 3)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert not await provider.circuit_is_open()
        assert list(await provider.list_sandboxes()) == []

    async def test_closes_by_itself_when_the_provider_is_well_again_after_its_time(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.create(1)
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=2, circuit_timeout_sec=0.3)
        await self._fail(provider, times=2)
        simulator.faults = Faults()
        await self._ask_until_somebody_answers(provider, simulator, calls=3)
        assert not await provider.circuit_is_open()
        assert len(await provider.list_sandboxes()) == 1
        simulator.faults = Faults(outage="error")
        await self._fail(provider, times=1)
        assert not await provider.circuit_is_open()

    async def test_one_failure_after_its_time_opens_it_again(
        self, simulator: Simulator, simulator_url: str, connect: Connect
    ) -> None:
        simulator.faults = Faults(outage="error")
        provider = connect(simulator_url, circuit_threshold=2, circuit_timeout_sec=0.3)
        await self._fail(provider, times=2)
        for calls in (3, 4):
            await self._ask_until_somebody_answers(provider, simulator, calls=calls)
            assert await provider.circuit_is_open()

    async def _fail(self, provider: HttpProvider, *, times: int) -> None:
        for _ in range(times):
            with pytest.raises(ProviderUnavailableError):
                await provider.list_sandboxes()

    async def _ask_until_somebody_answers(
        self, provider: HttpProvider, simulator: Simulator, *, calls: int
    ) -> None:
        """Ask on until the simulator has been asked `calls` times in all; all else was refused."""
        assert await provider.circuit_is_open()
        async with asyncio.timeout(DEADLINE_SEC):
            while simulator.calls["list"] < calls:
                try:
                    await provider.list_sandboxes()
                except CircuitOpenError:
                    await asyncio.sleep(0.01)
                except ProviderUnavailableError:
                    break
        assert simulator.calls["list"] == calls
