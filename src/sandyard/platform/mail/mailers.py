"""Sends mail by SMTP, or writes it to files in an outbox if no mail server is set."""

import asyncio
import os
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import stamina

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import IdMaker

_ATTEMPTS = 3
_TIMEOUT_SEC = 5
_POLICY = SMTP.clone(max_line_length=998)
"""A token stays on one line, so that it can be copied."""


@dataclass(frozen=True, slots=True)
class Mail:
    to: str
    subject: str
    text: str


class Mailer(Protocol):
    async def send(self, mail: Mail) -> None:
        """Deliver the mail; on return it has been handed over durably."""


class FileOutbox:
    """One `.eml` per mail, complete or absent; only its owner may read it."""

    def __init__(self, folder: Path, *, sender: str, clock: Clock, make_id: IdMaker) -> None:
        self._folder = folder
        self._sender = sender
        self._clock = clock
        self._make_id = make_id

    async def send(self, mail: Mail) -> None:
        now = self._clock.now()
        content = _message(mail, self._sender, now).as_bytes(policy=_POLICY)
        name = f"{utc_time(now):%Y%m%dT%H%M%S.%fZ}-{self._make_id()}.eml"
        await asyncio.to_thread(self._write, name, content)

    def _write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._folder / f".{name}.new"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / name)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name too
        finally:
            os.close(folder)


class SmtpMailer:
    """`smtp://`, `smtps://` (TLS from the first byte) or `smtp+starttls://` (TLS or nothing)."""

    def __init__(self, url: str, *, sender: str, clock: Clock) -> None:
        self._url = urlsplit(url)
        self._sender = sender
        self._clock = clock

    async def send(self, mail: Mail) -> None:
        message = _message(mail, self._sender, self._clock.now())
        async for attempt in stamina.retry_context(on=_passes, attempts=_ATTEMPTS, timeout=None):
            with attempt:
                await asyncio.to_thread(self._deliver, message)

    def _deliver(self, message: EmailMessage) -> None:
        with self._connect() as server:
            if self._url.scheme == "smtp+starttls":
                server.starttls(context=ssl.create_default_context())
            if self._url.username is not None:
                server.login(unquote(self._url.username), unquote(self._url.password or ""))
            server.send_message(message)

    def _connect(self) -> smtplib.SMTP:
        host = self._url.hostname or "localhost"
        if self._url.scheme == "smtps":
            return smtplib.SMTP_SSL(
                host,
                self._url.port or 465,
                timeout=_TIMEOUT_SEC,
                context=ssl.create_default_context(),
            )
        default_port = 587 if self._url.scheme == "smtp+starttls" else 25
        return smtplib.SMTP(host, self._url.port or default_port, timeout=_TIMEOUT_SEC)


def _passes(error: Exception) -> bool:
    """Whether a retry may help: no answer, or a temporary failure."""
    if isinstance(error, smtplib.SMTPResponseException):
        return 400 <= error.smtp_code < 500
    is_refusal = isinstance(error, smtplib.SMTPException)
    return isinstance(error, smtplib.SMTPServerDisconnected) or (
        isinstance(error, OSError) and not is_refusal
    )


def _message(mail: Mail, sender: str, now: float) -> EmailMessage:
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = mail.to
    message["Subject"] = mail.subject
    message["Date"] = format_datetime(utc_time(now))
    message.set_content(mail.text, cte="7bit")
    return message
