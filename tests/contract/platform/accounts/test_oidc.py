"""Logging in through an identity provider, on both engines, through the API."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import SecretStr

from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.services.oidc_issuer import CLIENT_ID, CLIENT_SECRET, OidcIssuer, oidc_issuer
from tests.support.storage.engines import SQL_ENGINES

ANN = {"email": "Ann@Example.com", "email_verified": True, "name": "Ann Example"}
REFUSED = (401, "INVALID_OIDC_LOGIN")


@pytest.fixture
def issuer(clock: ManualClock) -> Iterator[OidcIssuer]:
    with oidc_issuer(clock.now) as issuer:
        issuer.person = dict(ANN)
        yield issuer


def settings_of(issuer: OidcIssuer) -> dict[str, Any]:
    return {
        "oidc_issuer": issuer.url,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": SecretStr(CLIENT_SECRET),
    }


@pytest.fixture(params=SQL_ENGINES)
async def with_oidc(
    request: pytest.FixtureRequest,
    migrated: MigratedEngines,
    tmp_path: Path,
    clock: ManualClock,
    issuer: OidcIssuer,
) -> AsyncIterator[PlatformApi]:
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock, **settings_of(issuer)) as api:
        yield api


@pytest.fixture
async def on_sqlite(
    migrated: MigratedEngines, tmp_path: Path, clock: ManualClock, issuer: OidcIssuer
) -> AsyncIterator[PlatformApi]:
    """Where the engine does not matter."""
    url = await migrated.copy("sqlite", tmp_path)
    async with platform_api(url, tmp_path, clock, **settings_of(issuer)) as api:
        yield api


async def returned(api: PlatformApi) -> dict[str, str]:
    """What a browser that logged in at the issuer has to finish with."""
    begun = await api.post("/auth/oidc/begin", None)
    async with httpx.AsyncClient() as browser:
        sent_back = await browser.get(begun["authorization_url"])
    back = urlsplit(sent_back.headers["location"])
    assert f"{back.scheme}://{back.netloc}{back.path}" == "http://test/console/login/oidc/callback"
    answer = dict(parse_qsl(back.query))
    assert answer["state"] == begun["state"]
    return {"code": answer["code"]} | {key: begun[key] for key in ("nonce", "code_verifier")}


async def finish(api: PlatformApi, **changes: str) -> httpx.Response:
    return await api.call("POST", "/auth/oidc/finish", json=await returned(api) | changes)


async def events_of(api: PlatformApi, answer: httpx.Response) -> list[str]:
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    listed = await api.call("GET", "/events", headers=headers)
    return [each["kind"] for each in listed.json()["events"]]


async def test_the_first_login_opens_an_account_and_the_next_finds_it(
    with_oidc: PlatformApi,
) -> None:
    first = await finish(with_oidc)
    assert first.status_code == 200, first.text
    account = first.json()["account"]
    assert (account["email"], account["username"]) == ("ann@example.com", "Ann")
    assert (account["full_name"], account["is_verified"]) == ("Ann Example", True)
    again = await finish(with_oidc)
    assert again.json()["account"]["account_id"] == account["account_id"]
    kinds = await events_of(with_oidc, again)
    assert kinds.count("account.created") == 1
    assert kinds.count("login.succeeded") == 2
    caller = Caller(
        account["account_id"],
        account["email"],
        account["username"],
        {"Authorization": f"Bearer {again.json()['access_token']}"},
    )
    [project] = (await with_oidc.get("/projects", caller))["projects"]
    assert project["is_default"]
    await with_oidc.post("/auth/logout", caller)
    assert (await with_oidc.call("GET", "/me", caller)).status_code == 401


async def test_an_account_with_a_password_is_found_by_its_address(with_oidc: PlatformApi) -> None:
    ann = await with_oidc.account("ann")
    answer = await finish(with_oidc)
    assert answer.json()["account"]["account_id"] == ann.account_id


async def test_a_crowd_of_first_logins_opens_one_account(with_oidc: PlatformApi) -> None:
    answers = await asyncio.gather(*(finish(with_oidc) for _ in range(8)))
    assert {each.status_code for each in answers} == {200}
    assert len({each.json()["account"]["account_id"] for each in answers}) == 1


async def test_sign_ups_of_the_address_end_with_the_first_login(with_oidc: PlatformApi) -> None:
    body = {"email": "ann@example.com", "username": "ann", "password": "a password of hers"}
    await with_oidc.post("/auth/signup", None, body)
    token = await with_oidc.last_token()
    answer = await finish(with_oidc)
    assert answer.json()["account"]["username"] == "Ann"
    late = await with_oidc.call("POST", "/auth/verify", json={"token": token})
    assert code_of(late) == (400, "INVALID_VERIFICATION_TOKEN")


async def test_a_name_that_is_taken_gets_the_accounts_number(
    with_oidc: PlatformApi, issuer: OidcIssuer
) -> None:
    await with_oidc.account("other")
    issuer.person["preferred_username"] = "Other"
    account = (await finish(with_oidc)).json()["account"]
    assert account["username"] == f"Other-{account['account_id']}"


async def test_a_deactivated_account_is_refused_and_the_attempt_is_kept(
    with_oidc: PlatformApi,
) -> None:
    admin, ann = await with_oidc.admin(), await with_oidc.account("ann")
    await with_oidc.post(f"/admin/users/{ann.account_id}/deactivate", admin)
    assert code_of(await finish(with_oidc)) == (403, "ACCOUNT_INACTIVE")
    await with_oidc.post(f"/admin/users/{ann.account_id}/activate", admin)
    kinds = await events_of(with_oidc, await finish(with_oidc))
    assert kinds.count("login.failed") == 1


@pytest.mark.parametrize(
    ("mode", "code"), [("closed", "SIGNUP_CLOSED"), ("invite", "INVITATION_REQUIRED")]
)
async def test_where_not_everybody_signs_up_only_known_accounts_log_in(
    migrated: MigratedEngines,
    tmp_path: Path,
    clock: ManualClock,
    issuer: OidcIssuer,
    mode: str,
    code: str,
) -> None:
    url = await migrated.copy("sqlite", tmp_path)
    chosen = settings_of(issuer) | {"signup": mode}
    async with platform_api(url, tmp_path, clock, **chosen) as api:
        assert code_of(await finish(api)) == (403, code)
        await api.account("ann")
        assert (await finish(api)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "of another login"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": ["another client", CLIENT_ID]},
        {"aud": ["another client", CLIENT_ID], "azp": "another client"},
        {"azp": "another client"},
        {"iss": "https://another.example.com"},
        {"exp": 1_000_000_000},
        {"nbf": 4_000_000_000},
    ],
)
async def test_an_id_token_for_anything_else_is_refused(
    on_sqlite: PlatformApi, issuer: OidcIssuer, wrong: dict[str, Any]
) -> None:
    issuer.instead = wrong
    assert code_of(await finish(on_sqlite)) == REFUSED
    assert issuer.exchanged == 1


async def test_an_id_token_with_another_signature_is_refused(
    on_sqlite: PlatformApi, issuer: OidcIssuer
) -> None:
    issuer.signs_with = ec.generate_private_key(ec.SECP256R1())
    assert code_of(await finish(on_sqlite)) == REFUSED


@pytest.mark.parametrize(
    "wrong",
    [
        {"email_verified": False},
        {"email_verified": None},
        {"email_verified": "true"},
        {"email_verified": 1},
        {"email": None},
        {"email": "ann"},
        {"email": "ann@example.com, bob@example.com"},
        {"email": ["ann@example.com"]},
    ],
)
async def test_an_address_that_is_not_verified_opens_nothing(
    on_sqlite: PlatformApi, issuer: OidcIssuer, wrong: dict[str, Any]
) -> None:
    await on_sqlite.account("ann")
    issuer.instead = wrong
    assert code_of(await finish(on_sqlite)) == (403, "EMAIL_NOT_VERIFIED")


async def test_a_code_is_good_once_and_with_its_own_verifier_and_nonce(
    on_sqlite: PlatformApi,
) -> None:
    used = await returned(on_sqlite)
    assert (await on_sqlite.call("POST", "/auth/oidc/finish", json=used)).status_code == 200
    assert code_of(await on_sqlite.call("POST", "/auth/oidc/finish", json=used)) == REFUSED
    other = await returned(on_sqlite)
    for stolen in ("code_verifier", "nonce"):
        assert code_of(await finish(on_sqlite, **{stolen: other[stolen]})) == REFUSED
    assert code_of(await finish(on_sqlite, code="made up")) == REFUSED


async def test_while_the_issuer_is_away_that_is_said_and_what_is_known_goes_on(
    on_sqlite: PlatformApi, issuer: OidcIssuer, clock: ManualClock
) -> None:
    away = (503, "OIDC_ISSUER_UNAVAILABLE")
    issuer.is_away = True
    answer = await on_sqlite.call("POST", "/auth/oidc/begin")
    assert code_of(answer) == away
    assert answer.headers["retry-after"] == "5"
    issuer.is_away = False
    clock.advance(5)
    begun = await returned(on_sqlite)
    issuer.is_away = True
    assert code_of(await on_sqlite.call("POST", "/auth/oidc/finish", json=begun)) == away
    assert (await on_sqlite.call("POST", "/auth/oidc/begin")).status_code == 200
    issuer.is_away = False
    assert (await on_sqlite.call("POST", "/auth/oidc/finish", json=begun)).status_code == 200


async def test_a_description_of_another_issuer_is_not_believed(
    on_sqlite: PlatformApi, issuer: OidcIssuer
) -> None:
    issuer.issuer = "https://another.example.com"
    answer = await on_sqlite.call("POST", "/auth/oidc/begin")
    assert code_of(answer) == (503, "OIDC_ISSUER_UNAVAILABLE")


async def test_the_secret_goes_where_the_issuer_takes_it(
    on_sqlite: PlatformApi, issuer: OidcIssuer
) -> None:
    issuer.takes_basic = False
    assert (await finish(on_sqlite)).status_code == 200


async def test_without_an_identity_provider_there_is_none(api: PlatformApi) -> None:
    assert code_of(await api.call("POST", "/auth/oidc/begin")) == (403, "OIDC_NOT_CONFIGURED")
    body = {"code": "a", "nonce": "b", "code_verifier": "c"}
    answer = await api.call("POST", "/auth/oidc/finish", json=body)
    assert code_of(answer) == (403, "OIDC_NOT_CONFIGURED")
