"""Accounts from sign-up to deactivation, on both engines, through the API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.platform.accounts.context import IdMakers
from sandyard.platform.schema.tables import pending_signups, projects, users
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    PASSWORD,
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
    token_in,
)
from tests.support.storage.engines import SQL_ENGINES

HOUR = 3600
SIGNUP = {
    "email": "Ann@Example.com",
    "username": "Ann",
    "password": PASSWORD,
    "full_name": "Ann Ä. Example",
}


async def sign_up(api: PlatformApi, **changes: Any) -> None:
    await api.post("/auth/signup", None, SIGNUP | changes)


async def verified(api: PlatformApi, **changes: Any) -> dict[str, Any]:
    await sign_up(api, **changes)
    body: dict[str, Any] = await api.post("/auth/verify", None, {"token": await api.last_token()})
    return body


async def logged_in(api: PlatformApi, login: str, password: str = PASSWORD) -> Caller:
    body = await api.post("/auth/login", None, {"login": login, "password": password})
    account = body["account"]
    headers = {"Authorization": f"Bearer {body['access_token']}"}
    return Caller(account["account_id"], account["email"], account["username"], headers)


async def rows(api: PlatformApi, table: sa.Table) -> list[Any]:
    statement = sa.select(table)
    found = await api.part.database.read(lambda c: c.execute(statement).all())
    return list(found)


async def test_sign_up_mail_verify_log_in_me(api: PlatformApi) -> None:
    account = await verified(api)
    assert (account["email"], account["username"]) == ("ann@example.com", "Ann")
    assert (account["role"], account["is_active"], account["is_verified"]) == ("user", True, True)
    assert len(account["account_id"]) == 12
    assert account["account_id"].isdigit()
    for login in ("Ann@Example.COM", "ann", "ANN"):
        caller = await logged_in(api, login)
        me = await api.get("/me", caller)
        assert me["account_id"] == account["account_id"]
        assert me["full_name"] == "Ann Ä. Example"
        assert me["last_login"] == "2027-01-15T08:00:00Z"
    [project] = await rows(api, projects)
    assert (project.owner_account_id, project.is_default) == (account["account_id"], True)
    assert await rows(api, pending_signups) == []


async def test_a_verification_token_is_good_once_and_for_24_hours(api: PlatformApi) -> None:
    await sign_up(api)
    token = await api.last_token()
    await api.post("/auth/verify", None, {"token": token})
    again = await api.call("POST", "/auth/verify", json={"token": token})
    assert code_of(again) == (400, "INVALID_VERIFICATION_TOKEN")
    await sign_up(api, email="b@example.com", username="Bob")
    token = await api.last_token()
    api.clock.advance(24 * HOUR)
    late = await api.call("POST", "/auth/verify", json={"token": token})
    assert code_of(late) == (400, "INVALID_VERIFICATION_TOKEN")
    assert len(await rows(api, users)) == 1


async def test_a_resent_token_replaces_the_first_and_lasts_24_hours_itself(
    api: PlatformApi,
) -> None:
    await sign_up(api)
    first = await api.last_token()
    api.clock.advance(23 * HOUR)
    await api.post("/auth/resend", None, {"email": "ANN@example.com"})
    second = await api.last_token()
    assert first != second
    refused = await api.call("POST", "/auth/verify", json={"token": first})
    assert refused.status_code == 400
    api.clock.advance(23 * HOUR)
    await api.post("/auth/verify", None, {"token": second})


async def test_an_account_that_the_operator_made_verifies_its_address_by_mail(
    api: PlatformApi,
) -> None:
    administration = api.part.administration
    made = await administration.create_admin(
        email="root@example.com", username="root", password=PASSWORD
    )
    assert not made.is_verified
    await api.post("/auth/resend", None, {"email": "root@example.com"})
    first = await api.last_token()
    api.clock.advance(1)
    await api.post("/auth/resend", None, {"email": "root@example.com"})
    token = await api.last_token()
    assert token != first
    replaced = await api.call("POST", "/auth/verify", json={"token": first})
    assert code_of(replaced) == (400, "INVALID_VERIFICATION_TOKEN")
    verified = await api.post("/auth/verify", None, {"token": token})
    assert (verified["account_id"], verified["is_verified"]) == (made.account_id, True)
    again = await api.call("POST", "/auth/verify", json={"token": token})
    assert code_of(again) == (400, "INVALID_VERIFICATION_TOKEN")
    mails = len(await api.mails())
    await api.post("/auth/resend", None, {"email": "root@example.com"})
    assert len(await api.mails()) == mails, "there is nothing left to verify"


async def test_a_strangers_sign_up_does_not_keep_the_owners_from_being_resent(
    api: PlatformApi,
) -> None:
    await sign_up(api)
    await sign_up(api, username="Stranger")
    before = len(await api.mails())
    await api.post("/auth/resend", None, {"email": "ann@example.com"})
    mails = (await api.mails())[before:]
    assert ["Stranger" in str(mail.get_content()) for mail in mails] == [True, False]
    assert "Then do nothing" in str(mails[0].get_content())
    account = await api.post("/auth/verify", None, {"token": token_in(mails[1])})
    assert account["username"] == "Ann"
    late = await api.call("POST", "/auth/verify", json={"token": token_in(mails[0])})
    assert code_of(late) == (400, "INVALID_VERIFICATION_TOKEN")


async def test_the_second_of_two_sign_ups_for_one_name_or_address_is_refused(
    api: PlatformApi,
) -> None:
    await sign_up(api)
    ann = await api.last_token()
    await sign_up(api, email="other@example.com", username="aNN")
    same_name = await api.last_token()
    await sign_up(api, username="Ann2")
    same_address = await api.last_token()
    await api.post("/auth/verify", None, {"token": ann})
    for token in (same_name, same_address):
        refused = await api.call("POST", "/auth/verify", json={"token": token})
        assert code_of(refused) == (400, "INVALID_VERIFICATION_TOKEN")
    assert len(await rows(api, users)) == 1


async def test_many_verifications_at_once_make_one_account(api: PlatformApi) -> None:
    tokens = []
    for number in range(8):
        await sign_up(api, username=f"Ann-{number}")
        tokens.append(await api.last_token())
    answers = await asyncio.gather(
        *(api.call("POST", "/auth/verify", json={"token": token}) for token in tokens * 2)
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [400] * 15
    assert len(await rows(api, users)) == len(await rows(api, projects)) == 1


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_account_ids_that_are_taken_are_drawn_again(
    engine: str, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> None:
    drawn = iter(["1" * 12, "1" * 12, "1" * 12, "2" * 12])
    make = IdMakers(account_id=lambda: next(drawn))
    url = await migrated.copy(engine, tmp_path)
    async with platform_api(url, tmp_path, clock, make=make) as api:
        assert (await verified(api))["account_id"] == "1" * 12
        second = await verified(api, email="b@example.com", username="Bob")
        assert second["account_id"] == "2" * 12


async def test_an_address_that_is_taken_gets_a_mail_that_says_so(api: PlatformApi) -> None:
    await verified(api)
    await sign_up(api, username="Other")
    await sign_up(api, email="other@example.com")
    first, by_address, by_name = await api.mails()
    assert first["From"] == "Sandyard <sandyard@localhost>"
    assert [first["To"], by_address["To"], by_name["To"]] == [
        *("ann@example.com", "ann@example.com", "other@example.com")
    ]
    assert "Token:" not in by_address.get_content() + by_name.get_content()
    assert "has an account" in by_address.get_content()
    assert "user name Ann" in by_name.get_content()


async def test_answers_do_not_tell_who_is_known(api: PlatformApi) -> None:
    """Byte for byte, but for the request id, which the caller chooses here."""
    known = await api.account("known")
    off = await api.account("off")
    admin = await api.admin()
    await api.post(f"/admin/users/{off.account_id}/deactivate", admin)
    await sign_up(api, email="pending@example.com", username="pending")

    async def answers(email: str, username: str) -> list[tuple[int, bytes, list[Any]]]:
        bodies: list[tuple[str, dict[str, str]]] = [
            ("/auth/signup", {"email": email, "username": "fresh", "password": PASSWORD}),
            ("/auth/signup", {"email": "a@b.cd", "username": username, "password": PASSWORD}),
            ("/auth/resend", {"email": email}),
            ("/auth/password/forgot", {"email": email}),
            ("/auth/login", {"login": email, "password": "wrong password"}),
            ("/auth/login", {"login": username, "password": "wrong password"}),
        ]
        found = []
        for path, body in bodies:
            answer = await api.call("POST", path, json=body, headers={"X-Request-ID": "mine"})
            found.append((answer.status_code, answer.content, sorted(answer.headers.items())))
        return found

    for_stranger = await answers("nobody@example.com", "nobody")
    assert [status for status, _, _ in for_stranger] == [202, 202, 202, 202, 401, 401]
    assert await answers(known.email, known.username) == for_stranger
    assert await answers(off.email, off.username) == for_stranger
    assert await answers("pending@example.com", "pending") == for_stranger
    right = await api.call("POST", "/auth/login", json={"login": off.email, "password": PASSWORD})
    assert code_of(right) == (401, "INVALID_CREDENTIALS")


async def test_reset_by_mail_ends_logins_and_the_token(api: PlatformApi) -> None:
    await verified(api)
    caller = await logged_in(api, "Ann")
    await api.post("/auth/password/forgot", None, {"email": "Ann@example.com"})
    token = await api.last_token()
    body = {"token": token, "password": "another password"}
    await api.post("/auth/password/reset", None, body)
    assert (await api.call("GET", "/me", caller)).status_code == 401
    again = await api.call("POST", "/auth/password/reset", json=body)
    assert code_of(again) == (400, "INVALID_RESET_TOKEN")
    old = await api.call("POST", "/auth/login", json={"login": "Ann", "password": PASSWORD})
    assert old.status_code == 401
    await logged_in(api, "Ann", "another password")


async def test_a_reset_token_is_good_for_an_hour_and_until_the_next(api: PlatformApi) -> None:
    ann = await api.account("Ann")
    tokens = []
    for _ in range(2):
        await api.post("/auth/password/forgot", None, {"email": ann.email})
        tokens.append(await api.last_token())
        api.clock.advance(60)
    body = {"password": "another password"}
    replaced = await api.call("POST", "/auth/password/reset", json={"token": tokens[0], **body})
    assert code_of(replaced) == (400, "INVALID_RESET_TOKEN")
    api.clock.advance(HOUR - 60)
    late = await api.call("POST", "/auth/password/reset", json={"token": tokens[1], **body})
    assert code_of(late) == (400, "INVALID_RESET_TOKEN")
    await logged_in(api, "Ann")


async def test_a_password_change_needs_the_old_one_and_ends_logins(api: PlatformApi) -> None:
    ann = await api.account("Ann")
    body = {"current_password": "not this one", "new_password": "another password"}
    wrong = await api.call("POST", "/auth/password/change", ann, json=body)
    assert code_of(wrong) == (403, "WRONG_PASSWORD")
    await api.get("/me", ann)
    await api.post("/auth/password/forgot", None, {"email": ann.email})
    reset = await api.last_token()
    await api.post("/auth/password/change", ann, body | {"current_password": PASSWORD})
    assert code_of(await api.call("GET", "/me", ann)) == (401, "LOGIN_REQUIRED")
    await logged_in(api, "Ann", "another password")
    body = {"token": reset, "password": "a third password"}
    assert (await api.call("POST", "/auth/password/reset", json=body)).status_code == 400


async def test_log_out_ends_every_login(api: PlatformApi) -> None:
    await api.account("Ann")
    first, second = await logged_in(api, "Ann"), await logged_in(api, "Ann")
    await api.post("/auth/logout", first)
    for caller in (first, second):
        assert (await api.call("GET", "/me", caller)).status_code == 401
    await api.get("/me", await logged_in(api, "Ann"))


async def test_a_login_ends_with_its_time(api: PlatformApi) -> None:
    ann = await api.account()
    api.clock.advance(24 * HOUR - 1)
    await api.get("/me", ann)
    api.clock.advance(1)
    assert (await api.call("GET", "/me", ann)).status_code == 401


async def test_other_credentials_open_nothing(api: PlatformApi) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Bearer sbk-" + "a" * 40},
        {"X-API-Key": "sbk-" + "a" * 40},
        {"X-API-Key": "a" * 64},
        {"Authorization": "Basic YTpi"},
        # {"alg": "none"} and a true account id would do, if signatures were not looked at.
        {"Authorization": "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIiwidmVyIjowfQ."},
    ):
        answer = await api.call("GET", "/me", headers=headers)
        assert code_of(answer) == (401, "LOGIN_REQUIRED"), headers
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_login_signed_by_another_server_opens_nothing_and_one_sent_twice_is_told(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    token = ann.headers["Authorization"]
    for other in (("Authorization", token), ("X-API-Key", "sbk-" + "a" * 40)):
        twice = await api.client.get("/api/v1/me", headers=[("Authorization", token), other])
        assert code_of(twice) == (400, "REPEATED_CREDENTIAL")
    changed = token[:-5] + ("AAAAA" if not token.endswith("AAAAA") else "BBBBB")
    assert (await api.call("GET", "/me", headers={"Authorization": changed})).status_code == 401


async def test_profile_changes_only_what_is_sent(api: PlatformApi) -> None:
    ann = await api.account()
    api.clock.advance(5)
    both = {"full_name": "Ann", "spend_threshold": "12.5"}
    me = (await api.call("PATCH", "/me", ann, json=both)).json()
    assert (me["full_name"], me["spend_threshold"]) == ("Ann", "12.500000")
    assert me["updated_at"] == "2027-01-15T08:00:05Z"
    me = (await api.call("PATCH", "/me", ann, json={"full_name": None})).json()
    assert (me["full_name"], me["spend_threshold"]) == (None, "12.500000")
    assert (await api.call("PATCH", "/me", ann, json={})).json() == me
    refused = await api.call("PATCH", "/me", ann, json={"role": "admin"})
    assert code_of(refused) == (400, "INVALID_REQUEST")


async def test_sign_ups_that_nobody_verified_are_removed(api: PlatformApi) -> None:
    await sign_up(api)
    [job] = [job for job in api.part.schedule if job.name == "signups"]
    api.clock.advance(24 * HOUR - 1)
    assert (await api.part.runner.run(job)).signups_removed == 0
    api.clock.advance(1)
    assert (await api.part.runner.run(job)).signups_removed == 1
    assert await rows(api, pending_signups) == []


async def test_what_is_kept_of_a_token_is_its_hash(api: PlatformApi) -> None:
    await verified(api)
    await api.post("/auth/password/forgot", None, {"email": "ann@example.com"})
    reset = await api.last_token()
    await sign_up(api, email="b@example.com", username="Bob")
    verification = await api.last_token()
    kept = repr(await rows(api, users)) + repr(await rows(api, pending_signups))
    assert "$argon2id$" in kept
    for secret in (reset, verification, PASSWORD):
        assert secret not in kept
