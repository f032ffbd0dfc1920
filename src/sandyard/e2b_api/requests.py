"""Parses and validates requests to the control API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from sandyard.e2b_api.envd.connect import object_of
from sandyard.e2b_api.errors import NotJsonError, NotOfferedError
from sandyard.e2b_api.sandboxes.networks import network_of, ports_of
from sandyard.kit.errors import BodyTooLargeError
from sandyard.platform.sandboxes.network.traffic_rules import TrafficRules
from sandyard.runtime.network_model import Network

_MOST_BYTES = 1 << 20
_MOST_METADATA = 100
_LONGEST = 4096
_NOT_OFFERED = ("iam", "volumeMounts")


@dataclass(frozen=True, slots=True)
class NewSandboxRequest:
    template: str
    timeout_sec: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    auto_pause: bool = False
    auto_resume: bool = False
    is_public: bool = True
    network: Network = "internet"
    rules: TrafficRules = field(default_factory=TrafficRules)
    idempotency_key: str | None = None


async def body_of(request: Request) -> Mapping[str, Any]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise BodyTooLargeError
    return object_of(body)


def new_sandbox(
    body: Mapping[str, Any], *, idempotency_key: str | None, timeout_sec: int
) -> NewSandboxRequest:
    """`timeout_sec` is the default. Raises NotJsonError, NotOfferedError."""
    template = body.get("templateID")
    if not isinstance(template, str) or not template:
        raise NotJsonError("`templateID` must name the template.")
    for name in _NOT_OFFERED:
        if body.get(name):
            raise NotOfferedError(f"This server does not offer `{name}` of E2B's API.")
    sent = _object(body, "network")
    has_internet = body.get("allow_internet_access") is not False
    network, rules = network_of(sent, has_internet=has_internet)
    resume = body.get("autoResume") or {}
    return NewSandboxRequest(
        template=template,
        timeout_sec=whole_number(body, "timeout", timeout_sec),
        metadata=texts(body, "metadata"),
        variables=texts(body, "envVars"),
        auto_pause=body.get("autoPause") is True,
        auto_resume=bool(resume.get("enabled")) if isinstance(resume, dict) else False,
        is_public=sent.get("allowPublicTraffic") is not False,
        network=network,
        rules=ports_of(sent, rules),
        idempotency_key=idempotency_key,
    )


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise NotJsonError(f"`{name}` must be an object.")
    return found


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise NotJsonError(f"`{name}` must be a string.")
    return value or None


def strings(body: Mapping[str, Any], name: str) -> list[str]:
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise NotJsonError(f"`{name}` must be strings.")
    return found


def whole_number(body: Mapping[str, Any], name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise NotJsonError(f"`{name}` must be a number of seconds, 0 or more.")
    return int(value)


def texts(body: Mapping[str, Any], name: str) -> dict[str, str]:
    found = body.get(name) or {}
    is_good = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    if not is_good or len(found) > _MOST_METADATA:
        raise NotJsonError(f"`{name}` must be an object of at most {_MOST_METADATA} strings.")
    if any(len(each) > _LONGEST or "\0" in each for pair in found.items() for each in pair):
        raise NotJsonError(
            f"`{name}` must have at most {_LONGEST} characters in each name and value."
        )
    return dict(found)
