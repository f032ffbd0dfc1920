"""Secrets that are stored elsewhere, reread while in use."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from pydantic import SecretStr, ValidationError

from sandyard.kit.patterns import in_words
from sandyard.kit.rotation import NEVER_DROPPED, Rotation, RotationPolicy, Secret
from sandyard.kit.wired import wired
from sandyard.settings.fields import tokens
from sandyard.settings.references import StoredSecret, UnreadableSettingError, read

logger = logging.getLogger(__name__)

_ROTATE = {"action": "rotate"}
_LOOK_SEC = 1.0
"""The minimum interval between reloads caused by unknown credentials."""

Validate = Callable[[str, str], SecretStr | None]
"""Parses the value of a setting. Raises ValidationError."""


class Use(Enum):
    """The purpose of a secret, which decides what happens to a value that is no longer stored."""

    ACCEPTED = "accepted for the overlap"
    LASTING = "stored data rests on it: never dropped"
    SENT = "one value, of which only the newest is of use"


USES: Mapping[str, Use] = {
    "broker_api_token": Use.ACCEPTED,
    "broker_admin_token": Use.ACCEPTED,
    "telemetry_admin_token": Use.ACCEPTED,
    "metrics_token": Use.ACCEPTED,
    "jwt_secret": Use.ACCEPTED,
    "gateway_secret": Use.ACCEPTED,
    "secrets_key": Use.LASTING,
    "api_key_pepper": Use.LASTING,
    "database_url": Use.SENT,
    "database_password": Use.SENT,
    "csp_api_token": Use.SENT,
    "oidc_client_secret": Use.SENT,
}
"""The settings that are reread. A test compares the docs with this."""

_DISTINCT = {setting for setting, use in USES.items() if use is not Use.SENT} - {"metrics_token"}
"""No two of these may share a value."""


@dataclass(slots=True)
class _Watched:
    reference: str
    policy: RotationPolicy
    secret: Secret
    rotation: Rotation
    read_at: float = -NEVER_DROPPED
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


@wired
class Secrets:
    """The secrets of one process. Those with a reference are watched from their first use."""

    references: Mapping[str, str]
    validate: Validate
    refresh_sec: float
    overlap_sec: float
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._distribution_sec = 2 * self.refresh_sec
        self._given: dict[str, Secret] = {}
        self._watched: dict[str, _Watched] = {}

    @property
    def watched(self) -> tuple[str, ...]:
        return tuple(self._watched)

    def of(self, setting: str, value: SecretStr | None) -> Secret:
        if setting in self._watched:
            return self._watched[setting].secret
        values = _values(setting, value)
        secret = self._given[setting] = Secret(values)
        if setting in self.references:
            secret.reload = partial(self._reload, setting)
            self._watched[setting] = _Watched(
                self.references[setting],
                self._policy(setting),
                secret,
                Rotation(values, since=-NEVER_DROPPED),
            )
        return secret

    async def refresh(self) -> Mapping[str, bool]:
        """Reread all; returns whether each could be read. Those that can't be read stay
        unchanged."""
        names = self.watched
        read_well = await asyncio.gather(*(self._refresh(name) for name in names))
        return dict(zip(names, read_well, strict=True))

    def _policy(self, setting: str) -> RotationPolicy:
        if USES[setting] is Use.SENT:
            return RotationPolicy(distribution_sec=0, overlap_sec=0)
        lasts = NEVER_DROPPED if USES[setting] is Use.LASTING else self.overlap_sec
        return RotationPolicy(self._distribution_sec, lasts)

    async def _reload(self, setting: str) -> None:
        """At most once a second; concurrent callers wait for the next reload."""
        watched, came_at = self._watched[setting], time.monotonic()
        async with watched.reading:
            if watched.read_at < came_at:
                await asyncio.sleep(max(0.0, watched.read_at + _LOOK_SEC - time.monotonic()))
                await self._read(setting, watched)

    async def _refresh(self, setting: str) -> bool:
        watched = self._watched[setting]
        async with watched.reading:
            return await self._read(setting, watched)

    async def _read(self, setting: str, watched: _Watched) -> bool:
        watched.read_at = time.monotonic()
        rotation = before = watched.rotation
        try:
            stored = await asyncio.to_thread(read, setting, watched.reference, with_previous=True)
            rotation = self._rotated(setting, watched, stored)
        except UnreadableSettingError as error:
            logger.warning("%s. The previous values stay in force", error, extra=_ROTATE)
            return False
        finally:
            self._swap(watched, rotation)
        if rotation.current != before.current:
            logger.info("%s was rotated", setting.upper(), extra=_ROTATE)
        return True

    def _rotated(self, setting: str, watched: _Watched, stored: StoredSecret) -> Rotation:
        values = self._checked(setting, stored)
        rotation = watched.rotation.rotate(values, now=self.now(), policy=watched.policy)
        if stored.changed_at is None:
            return rotation
        # The store has the previous value: this process may be newer, or have reloaded too late.
        former = _values(setting, None if stored.previous is None else SecretStr(stored.previous))
        until = stored.changed_at + watched.policy.overlap_sec
        return Rotation(
            values, stored.changed_at, dict(rotation.former) | dict.fromkeys(former, until)
        )

    def _checked(self, setting: str, stored: StoredSecret) -> tuple[str, ...]:
        """The values, if valid for the setting; UnreadableSettingError gives the reason."""
        try:
            values = _values(setting, self.validate(setting, stored.text))
        except ValidationError as error:
            why = in_words(error.errors(include_input=False, include_url=False)[0])
            raise UnreadableSettingError(f"{setting.upper()}: {why}") from None
        if not any(values):
            raise UnreadableSettingError(f"{setting.upper()}: the value is empty")
        for other, secret in self._given.items():
            if {other, setting} <= _DISTINCT and other != setting and set(values) & set(secret):
                raise UnreadableSettingError(f"{setting.upper()}: must differ from {other.upper()}")
        return values

    def _swap(self, watched: _Watched, rotation: Rotation) -> None:
        watched.rotation = rotation
        in_force = rotation.in_force(now=self.now(), policy=watched.policy)
        if in_force != tuple(watched.secret):
            watched.secret.swap(in_force)


def _values(setting: str, value: SecretStr | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if USES[setting] is Use.SENT:
        return (value.get_secret_value(),)
    return tokens(value)
