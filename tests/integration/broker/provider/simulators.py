"""How the simulated provider is asked."""

from typing import Any

import httpx

LISTS = ("/api/sandbox", "/current_user/accounts")
DELETES = ("/api/sandbox/{}", "/sandbox/accounts/{}")
NO_FAULTS = {
    "latency": 0.0,
    "delete_latency": 0.0,
    "error_rate": 0.0,
    "outage": "none",
    "break_after_page": 0,
    "empty_list": False,
    "lost_creations": False,
}


async def control(http: httpx.AsyncClient) -> Any:
    response = await http.get("/_sim")
    assert response.status_code == 200
    return response.json()
