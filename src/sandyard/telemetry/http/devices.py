"""Calls of devices: register, send readings."""

import json
import re
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from sandyard.kit.errors import InvalidError
from sandyard.kit.http.bodies import parse
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse
from sandyard.kit.http.security import SecurityScheme, find_credential, secured_by
from sandyard.telemetry.errors import InvalidApiKeyError
from sandyard.telemetry.http import PREFIX, schemas
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.model import IntakeReport
from sandyard.telemetry.service import Telemetry

DEVICE_KEY = SecurityScheme(
    "DeviceKey",
    "The `api_key` that `POST /telemetry/v1/api-keys` returns to an operator.",
    header="X-API-Key",
)
DEVICE_BEARER = SecurityScheme(
    "DeviceBearer", "The `api_key` that `POST /telemetry/v1/api-keys` returns, as a bearer token."
)
_INGEST = """1 to 100 readings as `readings`, or one bare reading. Every reading is acknowledged, a
duplicate or rejected; a rejected one never blocks the others and can be dropped. After a 5xx or no
response, send all of them again."""
_NO_NUMBER = re.compile(rb"(?<=[:,\[])\s*[-+]?(nan|inf(inity)?)(?=\s*[,}\]])", re.IGNORECASE)


def create_device_router(telemetry: Telemetry, keys: ApiKeys) -> APIRouter:
    async def device_key(request: Request) -> None:
        sent = find_credential(request.scope["headers"], key_wins=True)
        if sent is None:
            raise InvalidApiKeyError
        key = await keys.authenticate(sent.text)
        request.state.log = {"key_id": key.key_id}

    routes = GuardedRoutes(
        prefix=PREFIX,
        tag="devices",
        check=device_key,
        security=secured_by(DEVICE_KEY, DEVICE_BEARER),
    )

    @routes.post(
        "/data",
        "Send readings",
        description=_INGEST,
        is_direct=True,
        answers={200: {"model": schemas.IntakeAnswer, "description": "Where each reading went"}},
        described={"requestBody": schemas.INTAKE_BODY},
    )
    async def send_readings(request: Request) -> Response:
        report = await telemetry.ingest(await parse(_readings_in, await request.body()))
        request.state.log |= {
            "action": "ingest",
            "acknowledged": len(report.acknowledged),
            "duplicates": len(report.duplicates),
            "rejected": len(report.rejected),
        }
        return JsonResponse(_answer(report))

    @routes.post("/register", "Register a device")
    async def register_device(
        request: Request, body: schemas.RegistrationBody
    ) -> schemas.RegisteredAnswer:
        """Call it at each boot. The confirmation id never changes."""
        device = await telemetry.register(body.registration(), key_id=request.state.log["key_id"])
        request.state.log |= {"action": "register", "hardware_id": device.hardware_id}
        return schemas.RegisteredAnswer.of(device)

    return routes.router


def _readings_in(body: bytes) -> list[Any]:
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError:
        sent = _leniently(body)
    if not isinstance(sent, dict):
        raise InvalidError("The body must be a JSON object: a reading, or `readings`.")
    readings = sent.get("readings", [sent])
    if not isinstance(readings, list):
        raise InvalidError(
            "`readings` must be a list.",
            details={"mistakes": [{"in": "body", "field": "readings"}]},
        )
    return readings


def _leniently(body: bytes) -> Any:
    """Accepts NaN and Infinity, which JSON lacks but boards send, in any letters that their C
    library prints, so that only the reading that contains them is rejected."""
    try:
        return json.loads(_NO_NUMBER.sub(b" NaN", body))
    except (ValueError, RecursionError) as error:
        raise InvalidError("The body is not valid JSON. Correct it, or send less.") from error


def _answer(report: IntakeReport) -> bytes:
    return orjson.dumps(
        {
            "acknowledged_batch_ids": report.acknowledged,
            "duplicate_batch_ids": report.duplicates,
            "rejected": [
                {
                    "index": each.index,
                    "batch_id": each.batch_id,
                    "code": each.code,
                    "message": each.message,
                }
                for each in report.rejected
            ],
        }
    )
