"""Who has a host name: the one who lets it serve the token of a project."""

import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandyard.kit.public_addresses import Network, checked_socket
from sandyard.previews.errors import DomainRefusedError, DomainUnprovenError

MOST_DOMAINS = 20
_PATH = "/.well-known/sandyard-domain"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{4,200}}$)({_LABEL}\.)+[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?")
_ANSWER_BYTES = 1000
_TIMEOUT_SEC = 5


class _PrivateAddressError(Exception):
    """Its address is not public."""


@dataclass(frozen=True, slots=True)
class DomainProofs:
    """A token is of one project and one host name, and is the same each time."""

    secrets: Sequence[str]
    own_names: Sequence[str]
    """Names of this server, which, with all below them, are nobody's."""
    allowed: Sequence[Network]
    """That may be asked although they are not public."""

    def token(self, project_id: str, domain: str, *, secret: str | None = None) -> str:
        about = f"domain {project_id} {domain}".encode()
        return hmac.digest((secret or self.secrets[0]).encode(), about, "sha256").hex()

    async def require(self, project_id: str, domain: str) -> None:
        """Ask the host by https, and by http if that fails. Raises DomainRefusedError and
        DomainUnprovenError."""
        is_own = any(f".{domain}".endswith(f".{name}") for name in self.own_names)
        if is_own or not _NAME.fullmatch(domain):
            raise DomainRefusedError
        tokens = {self.token(project_id, domain, secret=each) for each in self.secrets}
        answers = []
        for scheme in ("https", "http"):
            answer = await self._ask(f"{scheme}://{domain}{_PATH}")
            if answer in tokens:
                return
            answers.append(f"{scheme}: {answer}")
        expected = {"token": self.token(project_id, domain), "url": f"http://{domain}{_PATH}"}
        raise DomainUnprovenError(details={**expected, "seen": answers})

    async def _ask(self, url: str) -> str:
        """What is answered there, or what went wrong. An address is checked when it is connected
        to, and redirects are not followed: they lead to nobody inside."""
        import aiohttp  # here: most servers never do

        connector = aiohttp.TCPConnector(
            socket_factory=checked_socket(self.allowed, _PrivateAddressError)
        )
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SEC)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    return f"status {answer.status}"
                said = await answer.content.read(_ANSWER_BYTES)
                return said.decode(errors="replace").strip()
        except _PrivateAddressError:
            return "its address is private"
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:200]
