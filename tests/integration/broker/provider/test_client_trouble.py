"""The client of the provider against every kind of unhealthy one."""

import asyncio

import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.kit.free_ports import free_port
from sandyard.tools.provider.simulator import Faults, Simulator
from tests.integration.broker.provider.calls import (
    DEADLINE_SEC,
    DIALECTS,
    EMPTY,
    Call,
    delete_one,
    list_all,
    page,
)
from tests.integration.conftest import Answers, Connect, Serve, silence, status


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
        provider = connect(await serve(app), read_timeout_sec=1, attempts=2)
        async with asyncio.timeout(DEADLINE_SEC):
            with pytest.raises(ProviderUnavailableError) as failed:
                await call(provider)
        assert len(app.requests) == 2
        assert "ReadTimeout" in (failed.value.reason or "")

    async def test_an_answer_after_a_time_out_is_as_good_as_any(
        self, serve: Serve, connect: Connect
    ) -> None:
        app = Answers(silence, page({"id": "a", "name": "A"}))
        provider = connect(await serve(app), read_timeout_sec=1, attempts=10)
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
