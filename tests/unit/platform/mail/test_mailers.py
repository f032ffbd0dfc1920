"""Mails arrive whole: by SMTP at a real server, or as files that only their owner reads."""

import asyncio
import email
import email.policy
import smtplib
from pathlib import Path

import pytest

from sandyard.platform.mail.email_templates import EmailTemplates
from sandyard.platform.mail.mailers import FileOutbox, Mail, SmtpMailer
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import read_outbox, token_in
from tests.support.services.smtp_server import smtp_server

TOKEN = "t" * 43
CLOCK = ManualClock(1_800_000_000)
TEMPLATES = EmailTemplates("https://sandyard.example", "/api/v1")
MAIL = TEMPLATES.verification(email="ann@example.com", username="ann", token=TOKEN)
SENDER = "Sandyard <no-reply@example.com>"


def smtp(port: int, *, scheme: str = "smtp", user: str = "") -> SmtpMailer:
    return SmtpMailer(f"{scheme}://{user}127.0.0.1:{port}", sender=SENDER, clock=CLOCK)


async def test_smtp_with_a_login() -> None:
    async with smtp_server() as server:
        await smtp(server.port, user="me%40x:p%3Aw@").send(MAIL)
    assert server.logins == ["\0me@x\0p:w"]
    [sent] = server.mails
    mail = email.message_from_bytes(sent, policy=email.policy.default)
    assert (mail["From"], mail["To"]) == (SENDER, "ann@example.com")
    assert mail["Date"] == "Fri, 15 Jan 2027 08:00:00 +0000"
    assert f"Token: {TOKEN}".encode() in sent
    assert server.recipients == ["rcpt TO:<ann@example.com>"]


async def test_smtp_is_tried_again_when_the_connection_breaks() -> None:
    async with smtp_server(refuse=2) as server:
        await smtp(server.port).send(MAIL)
    assert len(server.mails) == 1


async def test_a_token_never_goes_to_a_server_that_was_to_speak_tls_and_does_not() -> None:
    async with smtp_server() as server:
        with pytest.raises(smtplib.SMTPNotSupportedError):
            await smtp(server.port, scheme="smtp+starttls", user="me:pw@").send(MAIL)
    assert (server.mails, server.logins) == ([], [])


async def test_the_outbox_keeps_a_file_for_each_mail_and_none_half(tmp_path: Path) -> None:
    made = iter("abcdefghijklmnopqrstuvwxyz")
    outbox = FileOutbox(tmp_path / "outbox", sender=SENDER, clock=CLOCK, make_id=lambda: next(made))
    await asyncio.gather(*(outbox.send(MAIL) for _ in range(20)))
    files = list((tmp_path / "outbox").iterdir())
    assert len(files) == 20
    assert {file.suffix for file in files} == {".eml"}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "outbox").stat().st_mode & 0o777 == 0o700
    assert {token_in(mail) for mail in read_outbox(tmp_path)} == {TOKEN}


async def test_an_address_cannot_add_a_header(tmp_path: Path) -> None:
    outbox = FileOutbox(tmp_path, sender=SENDER, clock=CLOCK, make_id=lambda: "a")
    with pytest.raises(ValueError, match=r"newline|linefeed"):
        await outbox.send(Mail("a@b.cd\r\nBcc: x@y.zz", "s", "t"))


def test_a_line_to_paste_quotes_what_a_shell_would_run() -> None:
    mail = TEMPLATES.email_taken(email="a'$(reboot)'@b.cd")
    assert """-d '{"email": "a'"'"'$(reboot)'"'"'@b.cd"}'""" in mail.text


def test_an_invitation_leads_to_the_page_where_one_signs_up() -> None:
    mail = TEMPLATES.invitation(email="a@b.cd", token=TOKEN)
    assert f"https://sandyard.example/console/signup?token={TOKEN}\n" in mail.text
    assert f"\nToken: {TOKEN}\n" in mail.text
