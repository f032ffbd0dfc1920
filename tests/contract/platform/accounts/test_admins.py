"""What admins do with accounts, and that it holds at once."""

import asyncio
from typing import Any

from sandyard.platform.access.principal import Role
from tests.contract.platform.access.test_isolation import key_of
from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi, code_of


async def login(api: PlatformApi, caller: Caller) -> int:
    body = {"login": caller.email, "password": PASSWORD}
    return (await api.call("POST", "/auth/login", json=body)).status_code


async def give_role(api: PlatformApi, by: Caller, to: Caller, role: str) -> Any:
    path = f"/admin/users/{to.account_id}/role"
    return await api.call("PUT", path, by, json={"role": role})


async def test_a_deactivated_account_is_out_at_once(api: PlatformApi) -> None:
    admin, ann = await api.admin(), await api.account()
    by_key = await key_of(api, ann)
    path = f"/admin/users/{ann.account_id}"
    assert (await api.post(f"{path}/deactivate", admin))["is_active"] is False
    for caller in (ann, by_key):
        assert code_of(await api.call("GET", "/me", caller)) == (401, "LOGIN_REQUIRED")
    assert await login(api, ann) == 401
    assert (await api.post(f"{path}/activate", admin))["is_active"] is True
    await api.get("/me", by_key)
    assert (await api.call("GET", "/me", ann)).status_code == 401, "old logins stay ended"
    assert await login(api, ann) == 200


async def test_a_role_holds_at_once_by_key_and_ends_logins(api: PlatformApi) -> None:
    admin, ann = await api.admin(), await api.account()
    by_key = await key_of(api, ann)
    assert (await api.call("GET", "/admin/users", by_key)).status_code == 403
    assert (await give_role(api, admin, ann, "admin")).json()["role"] == "admin"
    await api.get("/admin/users", by_key)
    assert (await api.call("GET", "/me", ann)).status_code == 401
    await give_role(api, admin, ann, "user")
    assert (await api.call("GET", "/admin/users", by_key)).status_code == 403


async def test_a_role_that_is_there_already_changes_nothing(api: PlatformApi) -> None:
    admin, ann = await api.admin(), await api.account()
    assert (await give_role(api, admin, ann, "user")).status_code == 200
    await api.get("/me", ann)


async def test_nobody_deactivates_himself_and_one_admin_stays(api: PlatformApi) -> None:
    admin = await api.admin()
    myself = await api.call("POST", f"/admin/users/{admin.account_id}/deactivate", admin)
    assert code_of(myself) == (409, "OWN_ACCOUNT")
    assert code_of(await give_role(api, admin, admin, "user")) == (409, "LAST_ADMIN")
    second = await api.admin()
    assert (await give_role(api, admin, admin, "user")).status_code == 200
    assert code_of(await give_role(api, second, second, "user")) == (409, "LAST_ADMIN")


async def test_admins_who_end_each_other_at_once_leave_one(api: PlatformApi) -> None:
    for _ in range(3):
        admins = [await api.admin() for _ in range(4)]
        users = (await api.get("/admin/users", admins[0], role="admin", is_active=True))["users"]
        ours = {admin.account_id for admin in admins}
        for other in users:
            if other["account_id"] not in ours:
                await api.post(f"/admin/users/{other['account_id']}/deactivate", admins[0])
        await asyncio.gather(
            *(
                api.call("POST", f"/admin/users/{target.account_id}/deactivate", by)
                for by, target in zip(admins, [*admins[1:], admins[0]], strict=True)
            ),
            *(give_role(api, by, by, "user") for by in admins),
        )
        fresh = await api.admin()
        left = (await api.get("/admin/users", fresh, role="admin", is_active=True))["users"]
        assert len(left) >= 2, "the fresh one and one of the others"


async def test_the_list_of_users_is_searched_filtered_sorted_and_paged(api: PlatformApi) -> None:
    admin = await api.account("root.admin", role=Role.ADMIN)
    for number in range(5):
        api.clock.advance(1)
        await api.account(f"Ann-{number}")
    everyone = (await api.get("/admin/users", admin))["users"]
    assert everyone[0]["username"] == "Ann-4"
    assert len(everyone) == 6
    found = await api.get("/admin/users", admin, q="ann-", sort="username", limit=3)
    rest = await api.get(
        "/admin/users", admin, q="ann-", sort="username", limit=3, cursor=found["next_cursor"]
    )
    shown = [user["username"] for user in found["users"] + rest["users"]]
    assert shown == [f"Ann-{number}" for number in range(5)]
    assert rest["next_cursor"] is None
    by_id = await api.get("/admin/users", admin, q=everyone[0]["account_id"])
    assert [user["username"] for user in by_id["users"]] == ["Ann-4"]
    await api.post(f"/admin/users/{everyone[0]['account_id']}/deactivate", admin)
    off = await api.get("/admin/users", admin, is_active=False)
    assert [user["username"] for user in off["users"]] == ["Ann-4"]
    assert len((await api.get("/admin/users", admin, role="admin"))["users"]) == 1
    assert "password" not in str(everyone)
    refused = await api.call("GET", "/admin/users", admin, params={"role": "root"})
    assert code_of(refused) == (400, "INVALID_REQUEST")
