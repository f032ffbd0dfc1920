"""Whoever follows the link of a mail gets where the mail says, with a browser alone."""

import re
from base64 import b64encode
from email.message import EmailMessage
from hashlib import sha256
from html import unescape

import httpx

from tests.support.platform.in_process import PASSWORD, PlatformApi, code_of

SIGNUP = {"email": "ann@example.com", "username": "Ann", "password": PASSWORD}


def link_in(mail: EmailMessage) -> str:
    [link] = re.findall(r"^  (https?://\S+)\r?$", mail.get_content(), re.MULTILINE)
    return str(link)


async def follow(api: PlatformApi, link: str) -> httpx.Response:
    assert link.startswith("http://test/account/")
    page = await api.client.get(link)
    assert page.status_code == 200, page.text
    return page


async def submit(api: PlatformApi, page: httpx.Response, **typed: str) -> httpx.Response:
    """Press the button of the page's form."""
    [action] = re.findall(r'<form method="post" action="([^"]+)"', page.text)
    hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page.text)
    fields = {name: unescape(value) for name, value in hidden} | typed
    return await api.client.post(str(page.request.url.join(action)), data=fields)


async def log_in(api: PlatformApi, password: str = PASSWORD) -> httpx.Response:
    return await api.call("POST", "/auth/login", json={"login": "Ann", "password": password})


async def test_the_link_of_a_sign_up_opens_the_account_by_its_button(api: PlatformApi) -> None:
    await api.post("/auth/signup", None, SIGNUP)
    link = link_in((await api.mails())[-1])
    page = await follow(api, link)
    await follow(api, link)
    assert (await log_in(api)).status_code == 401, "a mail scanner opens links too"
    opened = await submit(api, page)
    assert (opened.status_code, "Log in as Ann" in opened.text) == (200, True)
    assert (await log_in(api)).json()["account"]["is_verified"] is True
    again = await submit(api, page)
    assert (again.status_code, 'role="alert"' in again.text) == (400, True)
    assert "If you have opened your account, log in; otherwise sign up again." in again.text


async def test_a_page_with_a_token_stays_where_it_is(api: PlatformApi) -> None:
    page = await api.client.get("/account/verify", params={"token": '"><script>'})
    assert "<script" not in page.text
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    [style] = re.findall("<style>(.+?)</style>", page.text, re.DOTALL)
    hashed = b64encode(sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{hashed}'" in policy, "a browser applies no other style"


async def test_the_link_of_a_reset_sets_a_password(api: PlatformApi) -> None:
    await api.account("Ann")
    page = await follow(api, "http://test/account/forgot")
    wrong = await submit(api, page, email="nobody")
    assert (wrong.status_code, 'role="alert"' in wrong.text) == (400, True)
    for email in ("ann@example.com", "bob@example.com"):
        asked = await submit(api, page, email=email)
        assert asked.status_code == 200
        assert "If the address has an account, a mail with a link is on its way." in asked.text
    [mail] = await api.mails()
    page = await follow(api, link_in(mail))
    short = await submit(api, page, password="short")
    assert (short.status_code, "10 to 128" in short.text) == (400, True)
    done = await submit(api, short, password="another & longer Ä password")
    assert (done.status_code, "is set" in done.text) == (200, True)
    assert (await log_in(api)).status_code == 401
    assert (await log_in(api, "another & longer Ä password")).status_code == 200
    again = await submit(api, page, password="another password")
    assert (again.status_code, 'role="alert"' in again.text) == (400, True)
    [link] = re.findall(r'<a href="([^"]+)"', again.text)
    asking = await follow(api, str(again.request.url.join(link)))
    assert "Send me a link" in asking.text


async def test_an_address_that_is_taken_is_sent_where_to_go_on(api: PlatformApi) -> None:
    await api.account("Ann")
    await api.post("/auth/signup", None, SIGNUP)
    assert link_in((await api.mails())[-1]) == "http://test/account/forgot"


async def test_what_is_no_form_is_refused(api: PlatformApi) -> None:
    for path in ("verify", "reset", "forgot"):
        for body in (b"", b"\xff\xfe", b"&".join(b"a=b" for _ in range(100))):
            refused = await api.client.post(f"/account/{path}", content=body)
            assert refused.status_code == 400, (path, body)


async def test_resets_are_mailed_once_a_minute_and_the_first_token_holds(api: PlatformApi) -> None:
    ann = await api.account("Ann")
    for _ in range(3):
        await api.post("/auth/password/forgot", None, {"email": ann.email})
    [mail] = await api.mails()
    done = await submit(api, await follow(api, link_in(mail)), password="another password")
    assert done.status_code == 200
    api.clock.advance(60)
    await api.post("/auth/password/forgot", None, {"email": ann.email})
    assert len(await api.mails()) == 2


async def test_an_admin_of_the_command_line_is_verified_by_mail(api: PlatformApi) -> None:
    made = await api.part.administration.create_admin(
        email="ann@example.com", username="Ann", password=PASSWORD
    )
    assert not made.is_verified
    assert (await log_in(api)).json()["account"]["is_verified"] is False
    await api.post("/auth/password/forgot", None, {"email": "ann@example.com"})
    page = await follow(api, link_in((await api.mails())[-1]))
    await submit(api, page, password="another password")
    assert (await log_in(api, "another password")).json()["account"]["is_verified"] is True
    assert code_of(await log_in(api)) == (401, "INVALID_CREDENTIALS")
