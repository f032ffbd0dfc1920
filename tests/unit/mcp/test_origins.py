"""Which web pages may call `/mcp`."""

import httpx
import pytest
from starlette.responses import Response

from sandyard.kit.errors import SandyardError
from sandyard.kit.http.error_statuses import status_of
from sandyard.mcp.app import McpApp


@pytest.mark.parametrize(
    ("origin", "public_url", "status"),
    [
        ("null", None, 403),
        ("null", "https://own.example", 403),
        ("http://[", None, 403),
        ("https://own.example", None, 403),
        ("https://own.example", "https://own.example/below", 401),
        ("http://own.example", "https://own.example", 403),
        ("http://localhost:6274", None, 401),
        ("http://[::1]:6274", None, 401),
    ],
)
async def test_a_page_of_this_machine_or_of_the_public_url(
    origin: str, public_url: str | None, status: int
) -> None:
    """Those get as far as to be asked for a credential."""
    app = McpApp(
        Response(status_code=401),
        broker_path="/api",
        most_bytes=1000,
        metadata=None,
        public_url=public_url,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
        with pytest.raises(SandyardError) as refused:
            await client.post("/mcp", headers={"Origin": origin}, json={})
    assert status_of(refused.value) == status
