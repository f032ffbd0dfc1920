"""Readings as they come in: every bad field and its code."""

import math
import tracemalloc
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.telemetry.intake import canonical_number, validate, validate_all
from sandyard.telemetry.model import EARLIEST_MS, LATEST_MS, REJECTIONS, Reading, RejectionCode
from tests.support.telemetry.engines import BOOT_ID, DEVICE, NOW, NOW_MS, raw_reading, reading

MISSING = object()
OLDEST_MS = NOW_MS - 90 * 86_400_000

GOOD: list[tuple[str, Any]] = [
    ("batch_id", "x"),
    ("batch_id", "x" * 256),
    ("batch_id", "AZaz09_:.-"),
    ("hardware_id", "00:11:22:33:44:55"),
    ("timestamp_ms", OLDEST_MS),
    ("timestamp_ms", LATEST_MS - 1),
    ("boot_id", BOOT_ID.upper()),
    *(("boot_id", f"{BOOT_ID[:19]}{variant}{BOOT_ID[20:]}") for variant in "89abAB"),
    ("firmware_version", "1"),
    ("firmware_version", "v 1.0 (beta)"),
    ("firmware_version", "x" * 64),
    ("sensors", {}),
    ("sensors", {"a": 0, "_": -1, "0": 1.5, "a" * 64: 1e-130, "b": -1e125}),
    ("sensors", {f"s{n}": n for n in range(100)}),
    ("sensor_status", {}),
    ("sensor_status", {"a": "ok", "b": "error"}),
    ("sensor_status", {f"s{n}": "ok" for n in range(100)}),
    ("something_else", {"nested": [1, 2, 3]}),
    ("friendly_name", 5),
]

_TEXTS: tuple[Any, ...] = (None, 5, 1.5, True, [], {}, ["x"], "")

BAD: list[tuple[str, Any, str]] = [
    *(("batch_id", value, "INVALID_BATCH_ID") for value in (MISSING, *_TEXTS)),
    ("batch_id", "x" * 257, "INVALID_BATCH_ID"),
    *(
        ("batch_id", f"a{odd}b", "INVALID_BATCH_ID")
        for odd in (" ", "\n", "\t", "\x00", "#", "/", "+", "ü", "\u0661", "\ud800", "🌱")
    ),
    ("batch_id", "x\n", "INVALID_BATCH_ID"),
    *(("hardware_id", value, "INVALID_HARDWARE_ID") for value in (MISSING, *_TEXTS)),
    *(
        ("hardware_id", value, "INVALID_HARDWARE_ID")
        for value in (
            DEVICE.lower(),
            "aA:BB:CC:DD:EE:FF",
            "AA-BB-CC-DD-EE-FF",
            "AABBCCDDEEFF",
            "AA:BB:CC:DD:EE",
            "AA:BB:CC:DD:EE:FF:00",
            "AA:BB:CC:DD:EE:FG",
            "AA:BB:CC:DD:EE:F",
            f"{DEVICE}\n",
            f" {DEVICE}",
            "\u0661\u0661:BB:CC:DD:EE:FF",
        )
    ),
    *(
        ("timestamp_ms", value, "INVALID_TIMESTAMP")
        for value in (
            MISSING,
            None,
            True,
            False,
            float(NOW_MS),
            NOW_MS + 0.5,
            str(NOW_MS),
            [NOW_MS],
            math.nan,
            math.inf,
            0,
            -1,
            NOW,
            EARLIEST_MS - 1,
            LATEST_MS,
            10**30,
        )
    ),
    *(("boot_id", value, "INVALID_BOOT_ID") for value in (MISSING, *_TEXTS)),
    *(
        ("boot_id", value, "INVALID_BOOT_ID")
        for value in (
            str(uuid.uuid1()),
            str(uuid.uuid3(uuid.NAMESPACE_DNS, "board")),
            str(uuid.uuid5(uuid.NAMESPACE_DNS, "board")),
            str(uuid.UUID(int=0)),
            *(f"{BOOT_ID[:14]}{version}{BOOT_ID[15:]}" for version in "0123567f"),
            *(f"{BOOT_ID[:19]}{variant}{BOOT_ID[20:]}" for variant in "01234567cdef"),
            BOOT_ID.replace("-", ""),
            f"{{{BOOT_ID}}}",
            f"urn:uuid:{BOOT_ID}",
            f"{BOOT_ID}\n",
            BOOT_ID[:-1],
            f"{BOOT_ID}0",
            f"g{BOOT_ID[1:]}",
        )
    ),
    *(("firmware_version", value, "INVALID_FIRMWARE_VERSION") for value in (MISSING, *_TEXTS)),
    *(
        ("firmware_version", value, "INVALID_FIRMWARE_VERSION")
        for value in ("x" * 65, " 1", "1 ", "1\n", "1\x00", "ü", "1\u00a02", " ")
    ),
    *(
        ("sensors", value, "INVALID_SENSORS")
        for value in (MISSING, None, [], [1], "x", 5, True, {f"s{n}": n for n in range(101)})
    ),
    *(
        ("sensors", {"good": 1, "bad": value}, "INVALID_SENSORS")
        for value in (
            math.nan,
            math.inf,
            -math.inf,
            True,
            False,
            "22.5",
            "NaN",
            None,
            {"value": 22.5},
            [22.5],
            [],
            {},
            1e126,
            -1e126,
            10**126,
            10**400,
            1e-131,
            -5e-324,
        )
    ),
    *(
        ("sensors", {name: 1}, "INVALID_SENSORS")
        for name in ("", "x" * 65, "Temp", "TEMP", "a b", "a-b", "a.b", "ü", "a\n", "\u0661", "a'")
    ),
    *(
        ("sensor_status", value, "INVALID_SENSOR_STATUS")
        for value in (MISSING, None, [], ["ok"], "ok", 5, {f"s{n}": "ok" for n in range(101)})
    ),
    *(
        ("sensor_status", {"good": "ok", "bad": value}, "INVALID_SENSOR_STATUS")
        for value in ("OK", "Ok", "ok ", "warning", "", None, True, 0, ["ok"], {"is": "ok"})
    ),
    *(
        ("sensor_status", {name: "ok"}, "INVALID_SENSOR_STATUS")
        for name in ("", "x" * 65, "BME280", "a b", "ü", "a\n")
    ),
    *(("timestamp_ms", value, "TOO_OLD") for value in (EARLIEST_MS, OLDEST_MS - 1)),
]


def with_field(field: str, value: Any) -> dict[str, Any]:
    raw = raw_reading(1)
    if value is MISSING:
        del raw[field]
    else:
        raw[field] = value
    return raw


class TestJudge:
    @pytest.mark.parametrize(("field", "value"), GOOD)
    def test_a_valid_reading_is_accepted_unchanged(self, field: str, value: Any) -> None:
        validated = validate(with_field(field, value), oldest_ms=OLDEST_MS)
        assert isinstance(validated, Reading), validated
        known = {field: value} if hasattr(validated, field) and field != "friendly_name" else {}
        assert validated == replace(reading(1), **known)

    @pytest.mark.parametrize(
        ("field", "value", "code"), BAD, ids=[f"{n}-{f}-{c}" for n, (f, _, c) in enumerate(BAD)]
    )
    def test_refuses_a_bad_field_with_its_code(self, field: str, value: Any, code: str) -> None:
        assert validate(with_field(field, value), oldest_ms=OLDEST_MS) == RejectionCode(code)

    @pytest.mark.parametrize("value", [None, 5, 1.5, True, "x", [], [{}], math.nan])
    def test_a_reading_is_an_object(self, value: object) -> None:
        assert validate(value, oldest_ms=0) is RejectionCode.INVALID_READING

    def test_an_empty_object_lacks_its_id_first(self) -> None:
        assert validate({}, oldest_ms=0) is RejectionCode.INVALID_BATCH_ID

    def test_the_first_millisecond_of_2000_is_in_range(self) -> None:
        validated = validate(with_field("timestamp_ms", EARLIEST_MS), oldest_ms=0)
        assert isinstance(validated, Reading)
        assert validated.timestamp_ms == 946_684_800_000

    def test_a_malformed_old_one_is_malformed(self) -> None:
        """So that firmware learns of its mistake whenever it sends."""
        raw = with_field("timestamp_ms", OLDEST_MS - 1) | {"sensors": None}
        assert validate(raw, oldest_ms=OLDEST_MS) is RejectionCode.INVALID_SENSORS

    def test_every_code_has_a_message(self) -> None:
        assert REJECTIONS.keys() == set(RejectionCode)
        assert len(set(REJECTIONS.values())) == len(REJECTIONS)


class TestJudgeAll:
    def test_rejections_have_their_index_and_valid_batch_id(self) -> None:
        raw: list[object] = [
            raw_reading(1),
            "nonsense",
            raw_reading(2, sensors=None),
            raw_reading(3, batch_id="no good"),
            raw_reading(4),
            {"batch_id": 5},
        ]
        good, rejected = validate_all(raw, oldest_ms=OLDEST_MS)
        assert [(index, each.batch_id) for index, each in good] == [
            (0, raw_reading(1)["batch_id"]),
            (4, raw_reading(4)["batch_id"]),
        ]
        assert [(each.index, each.batch_id, each.code) for each in rejected] == [
            (1, None, "INVALID_READING"),
            (2, raw_reading(2)["batch_id"], "INVALID_SENSORS"),
            (3, None, "INVALID_BATCH_ID"),
            (5, None, "INVALID_BATCH_ID"),
        ]
        assert all(each.message for each in rejected)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(EARLIEST_MS, LATEST_MS)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["ok", "error", DEVICE, BOOT_ID]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
NAMES = st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "batch_id": st.from_regex(r"[A-Za-z0-9_:.-]{1,9}", fullmatch=True) | JSON,
        "hardware_id": st.just(DEVICE) | JSON,
        "timestamp_ms": st.integers(EARLIEST_MS, LATEST_MS) | JSON,
        "boot_id": st.uuids(version=4).map(str) | JSON,
        "firmware_version": st.text(max_size=70) | JSON,
        "sensors": st.dictionaries(NAMES, st.floats() | st.integers()) | JSON,
        "sensor_status": st.dictionaries(NAMES, st.sampled_from(["ok", "error"])) | JSON,
    },
)


_NEXT_ABOVE, _NEXT_BELOW = math.nextafter(9.9e125, math.inf), math.nextafter(1e-130, 0)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((22.0, 22), (-0.0, 0), (0.5, 0.5), (2**53 - 1, 2**53 - 1), (1 - 2**53, 1 - 2**53)),
        *((2**53, 2.0**53), (2**53 + 1, 2.0**53), (-(2**53), -(2.0**53))),
        *((9.9e125, 9.9e125), (_NEXT_ABOVE, None), (-_NEXT_ABOVE, None)),
        *((1e-130, 1e-130), (_NEXT_BELOW, None), (-_NEXT_BELOW, None)),
        *((10**309, None), (-(10**309), None), (math.nan, None), (True, None), ("1", None)),
    ],
)
def test_a_number_at_the_limits_of_what_engines_store(value: object, number: float | None) -> None:
    found = canonical_number(value)
    assert (found, type(found)) == (number, type(number))


def test_rejected_texts_are_not_cached() -> None:
    """Whoever has a key may send any."""
    tracemalloc.start()
    try:
        for number in range(60):
            text = f"{number}" * 100_000
            for value, names in (
                (text, ("hardware_id", "boot_id", "firmware_version")),
                ({text: "ok"}, ("sensors", "sensor_status")),
            ):
                for name in names:
                    raw = raw_reading(1) | {name: value}
                    assert validate(raw, oldest_ms=OLDEST_MS) in REJECTIONS
        del text, value, raw
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


class TestAnything:
    @given(JSON | FIELDS.map(lambda fields: raw_reading(1) | fields) | FIELDS)
    def test_is_a_reading_or_has_a_code(self, raw: object) -> None:
        validated = validate(raw, oldest_ms=OLDEST_MS)
        assert isinstance(validated, Reading | RejectionCode)
        if isinstance(validated, Reading):
            assert all(math.isfinite(value) for value in validated.sensors.values())
            assert validated.content_hash == replace(validated, friendly_name="name").content_hash

    @given(st.lists(JSON | st.just(raw_reading(1)), max_size=20))
    def test_every_reading_of_a_request_is_validated_once(self, raw: list[object]) -> None:
        good, rejected = validate_all(raw, oldest_ms=0)
        places = [index for index, _ in good] + [each.index for each in rejected]
        assert sorted(places) == list(range(len(raw)))

    @given(st.floats() | st.integers() | st.integers(-(10**130), 10**130))
    def test_a_number_has_one_form(self, value: float) -> None:
        number = canonical_number(value)
        if number is None:
            assert not math.isfinite(value) or not 1e-130 <= abs(value) <= 9.9e125
            return
        assert type(canonical_number(number)) is type(number)
        assert canonical_number(number) == number
        assert number == (value if abs(value) < 2**53 else float(value))
        assert repr(canonical_number(float(number))) == repr(number)

    @given(
        st.dictionaries(
            NAMES, st.floats() | st.floats(0, 1) | st.integers() | st.booleans(), max_size=4
        )
    )
    def test_sensors_are_numbers_in_their_one_form(self, sensors: dict[str, object]) -> None:
        numbers = {name: canonical_number(value) for name, value in sensors.items()}
        validated = validate(raw_reading(1, sensors=sensors), oldest_ms=OLDEST_MS)
        if None in numbers.values():
            assert validated is RejectionCode.INVALID_SENSORS
        else:
            assert isinstance(validated, Reading)
            assert repr(validated.sensors) == repr(numbers)

    @given(st.floats(2.0**53, 9.9e125) | st.sampled_from([9.9e125, 1e125, 2.0**53]))
    def test_a_number_that_an_engine_writes_out_is_the_same(self, value: float) -> None:
        """DynamoDB gives back all digits of 1e+125."""
        for each in (value, -value):
            digits, _, exponent = repr(each).partition("e+")
            if not exponent:
                continue
            whole, _, fraction = digits.partition(".")
            written = int(whole + fraction) * 10 ** (int(exponent) - len(fraction))
            assert canonical_number(written) == each

    @given(st.data())
    def test_the_content_hash_differs_with_the_measurements(self, data: st.DataObject) -> None:
        sensors = st.dictionaries(NAMES, st.integers(0, 3) | st.floats(0.25, 1), max_size=3)
        one, two = data.draw(sensors), data.draw(sensors)
        same = reading(1, sensors=one).content_hash == reading(1, sensors=two).content_hash
        assert same == (one == two)
