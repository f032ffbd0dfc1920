"""Telemetry's bodies and answers, as the OpenAPI document describes them."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictStr

from sandyard.kit.clock import rfc3339_from_ms
from sandyard.kit.http.schemas import AttributesAnswer, Documented, PageAnswer, StrictBody, eg
from sandyard.kit.patterns import pattern
from sandyard.telemetry import intake, model

FRIENDLY_NAME = pattern(r"^[^\x00-\x1f\x7f]+$", "must have no control characters")
"""No control characters."""

HardwareId = Annotated[
    StrictStr, Field(pattern=intake.HARDWARE_ID, description="MAC in upper case")
]
FriendlyName = Annotated[StrictStr, Field(min_length=1, max_length=64, pattern=FRIENDLY_NAME)]
Name = Annotated[StrictStr, Field(pattern=intake.NAME)]


def _time(value: object) -> object:
    return rfc3339_from_ms(value) if isinstance(value, int) else value


Time = Annotated[str, BeforeValidator(_time)]
"""RFC 3339, from epoch milliseconds."""


_DEVICE = {"hardware_id": "AA:BB:CC:DD:EE:FF"}
_BOOT = {"boot_id": "550e8400-e29b-41d4-a716-446655440000", "firmware_version": "1.0.16"}
_READING = {
    **_DEVICE,
    **_BOOT,
    "timestamp_ms": 1_793_350_800_000,
    "batch_id": "AABBCCDDEEFF-550e8400-1",
    "sensors": {"temp": 21.5},
    "sensor_status": {"temp": "ok"},
}


class Capabilities(BaseModel):
    """What newer firmware may add is left out."""

    sensors: list[Name] = Field(default_factory=list, max_length=intake.MAX_SENSORS)
    features: dict[Name, StrictBool] = Field(
        default_factory=dict,
        max_length=intake.MAX_SENSORS,
        json_schema_extra={"additionalProperties": False},  # other names are refused
    )


class RegistrationBody(Documented):
    """What newer firmware may add is left out."""

    hardware_id: HardwareId = eg("AA:BB:CC:DD:EE:FF")
    boot_id: Annotated[
        StrictStr, Field(pattern=intake.UUID4, description="UUID v4, new at each boot")
    ] = eg("550e8400-e29b-41d4-a716-446655440000")
    firmware_version: Annotated[StrictStr, Field(pattern=intake.FIRMWARE_VERSION)] = eg("1.0.16")
    capabilities: Capabilities = eg(
        {"sensors": ["temp"], "features": {"ota": True}}, default_factory=Capabilities
    )
    friendly_name: FriendlyName | None = eg(
        "Greenhouse 1", None, description="Used only if the device has no name yet"
    )

    def registration(self) -> model.Registration:
        return model.Registration(
            hardware_id=self.hardware_id,
            boot_id=self.boot_id,
            firmware_version=self.firmware_version,
            capabilities=self.capabilities.model_dump(),
            friendly_name=self.friendly_name,
        )


class RegisteredAnswer(Documented):
    status: Literal["registered"] = eg("registered", "registered")
    confirmation_id: str = eg(
        "3f0c9a52-6b1d-4e87-9c2f-5d8e7a6b4c3d",
        description="The same at every registration of this device",
    )
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    registered_at: Time = eg(
        "2026-10-30T09:00:00Z", description="RFC 3339, of the first registration"
    )

    @classmethod
    def of(cls, device: model.Device) -> Self:
        return cls(
            confirmation_id=device.confirmation_id,
            hardware_id=device.hardware_id,
            registered_at=rfc3339_from_ms(device.first_registered_at),
        )


class RejectionAnswer(BaseModel):
    index: int = Field(description="Its index in the request, from 0")
    batch_id: str | None = Field(description="Null if it had no valid one")
    code: model.RejectionCode
    message: str


class IntakeAnswer(Documented):
    """Every reading of the request is in one of the three; a rejection is final."""

    acknowledged_batch_ids: list[str] = eg(
        ["AABBCCDDEEFF-550e8400-1"], description="Stored now, durably"
    )
    duplicate_batch_ids: list[str] = eg([], description="Already stored, with the same content")
    rejected: list[RejectionAnswer] = eg([])


class DeviceAnswer(AttributesAnswer):
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    confirmation_id: str = eg("3f0c9a52-6b1d-4e87-9c2f-5d8e7a6b4c3d")
    friendly_name: str | None = eg("Greenhouse 1")
    firmware_version: str = eg("1.0.16")
    capabilities: dict[str, object] = eg({"sensors": ["temp"], "features": {"ota": True}})
    first_registered_at: Time = eg("2026-10-30T09:00:00Z")
    last_seen_at: Time = eg("2026-10-30T09:18:00Z")
    last_boot_id: str = eg("550e8400-e29b-41d4-a716-446655440000")


class DevicePage(PageAnswer):
    devices: list[DeviceAnswer]
    next_cursor: str | None


class RenameDeviceBody(StrictBody):
    friendly_name: FriendlyName | None = eg("Greenhouse 1", description="Null removes the name")


class ReadingAnswer(Documented):
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    timestamp_ms: int = eg(1_793_350_800_000)
    received_at: Time | None = eg(
        "2026-10-30T09:00:02Z",
        description="When it arrived, to the second; null if version 0.2.0 stored it",
    )
    batch_id: str = eg("AABBCCDDEEFF-550e8400-1")
    boot_id: str = eg("550e8400-e29b-41d4-a716-446655440000")
    firmware_version: str = eg("1.0.16")
    friendly_name: str | None = eg(
        "Greenhouse 1", description="The device's name when the reading arrived"
    )
    sensors: dict[str, float] = eg({"temp": 21.5})
    sensor_status: dict[str, str] = eg({"temp": "ok"})


def reading_answer(reading: model.Reading) -> dict[str, object]:
    """As described by `ReadingAnswer`, for listings that are too long to validate again."""
    values = dict(zip(model.READING_FIELDS, model.values_of_reading(reading), strict=True))
    return values | {"received_at": _time(reading.received_at)}


class ReadingPage(PageAnswer):
    readings: list[ReadingAnswer]
    next_cursor: str | None


class SeriesBucketAnswer(AttributesAnswer):
    start_ms: int = Field(description="Epoch milliseconds; a multiple of the bucket's length")
    min: float
    mean: float
    max: float
    count: int


class SeriesAnswer(Documented):
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    metric: str = eg("temp")
    bucket_ms: int = eg(3_600_000)
    series: list[SeriesBucketAnswer] = eg(
        [{"start_ms": 1_793_350_800_000, "min": 20.5, "mean": 21.5, "max": 22.5, "count": 60}],
        description="Only buckets with values",
    )


class SensorAnswer(AttributesAnswer):
    name: str
    value: float = Field(description="Its latest value in the range")
    timestamp_ms: int = Field(description="Epoch milliseconds, of that value")


class SensorsAnswer(Documented):
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    sensors: list[SensorAnswer] = eg(
        [{"name": "temp", "value": 21.5, "timestamp_ms": 1_793_350_800_000}]
    )


class GapAnswer(AttributesAnswer):
    from_ms: int = Field(description="Epoch milliseconds, of the reading before it")
    to_ms: int = Field(description="Epoch milliseconds, of the reading after it")


class GapsAnswer(Documented):
    hardware_id: str = eg("AA:BB:CC:DD:EE:FF")
    metric: str | None
    from_ms: int = eg(
        1_793_264_400_000, description="Where the range begins, not before the device was known"
    )
    to_ms: int = eg(1_793_350_800_000)
    usual_interval_ms: int | None = eg(
        60_000, description="The median interval between readings; null if there are fewer than two"
    )
    gaps: list[GapAnswer] = eg(
        [{"from_ms": 1_793_300_000_000, "to_ms": 1_793_301_980_000}],
        description="Intervals of at least twice the usual one, or of an hour if it is null",
    )


class DeviceKeyBody(StrictBody):
    description: (
        Annotated[StrictStr, Field(min_length=1, max_length=256, pattern=FRIENDLY_NAME)] | None
    ) = eg("Greenhouse", None)


class NewDeviceKeyAnswer(AttributesAnswer):
    key_id: str = eg("9b2f6d3e-4c81-4a57-8e0d-7f1a2b3c4d5e")
    api_key: str = eg(
        "8f14e45fceea167a5a36dedd4bea2543c9f0f895fb98ab9159f51fd0297e236d",
        description="Shown only once",
    )
    created_at: Time = eg("2026-10-30T09:00:00Z")
    description: str | None = eg("Greenhouse")


class DeviceKeyAnswer(AttributesAnswer):
    key_id: str = eg("9b2f6d3e-4c81-4a57-8e0d-7f1a2b3c4d5e")
    created_at: Time = eg("2026-10-30T09:00:00Z")
    last_used_at: Time | None = Field(description="To within five minutes")
    is_active: bool = eg(True)
    description: str | None = eg("Greenhouse")


class DeviceKeyPage(PageAnswer):
    api_keys: list[DeviceKeyAnswer]
    next_cursor: str | None


def _map_of(values: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "propertyNames": {"pattern": intake.NAME},
        "additionalProperties": values,
        "maxProperties": intake.MAX_SENSORS,
    }


READING_SCHEMA: dict[str, object] = {
    "type": "object",
    "title": "Reading",
    "required": [
        "hardware_id",
        "timestamp_ms",
        "batch_id",
        "boot_id",
        "firmware_version",
        "sensors",
        "sensor_status",
    ],
    "properties": {
        "hardware_id": {"type": "string", "pattern": intake.HARDWARE_ID},
        "timestamp_ms": {
            "type": "integer",
            "minimum": model.EARLIEST_MS,
            "maximum": model.LATEST_MS - 1,
        },
        "batch_id": {"type": "string", "pattern": intake.BATCH_ID},
        "boot_id": {"type": "string", "pattern": intake.UUID4},
        "firmware_version": {"type": "string", "pattern": intake.FIRMWARE_VERSION},
        "sensors": _map_of({"type": "number"}),
        "sensor_status": _map_of({"type": "string", "enum": list(intake.STATUSES)}),
    },
}
INTAKE_BODY: dict[str, object] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "examples": [{"readings": [_READING]}],
                "oneOf": [
                    {
                        "type": "object",
                        "required": ["readings"],
                        "properties": {
                            "readings": {
                                "type": "array",
                                "minItems": 1,
                                "maxItems": 100,
                                "items": READING_SCHEMA,
                            }
                        },
                    },
                    {**READING_SCHEMA, "not": {"required": ["readings"]}},
                ],
            }
        }
    },
}
"""Readings that do not fit the schema are rejected one by one, in an answer of status 200."""
