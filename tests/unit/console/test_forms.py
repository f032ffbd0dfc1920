"""What a form may hold is told by field, never by a failure of ours."""

import pytest

from sandyard.console.forms import (
    ANY_TEXT,
    ANY_WORDS,
    FLAG,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    VARIABLE,
    WHOLE_OR_NONE,
    WORDS,
    body_of,
    instant,
    number,
    whole_number,
)
from sandyard.kit.errors import InvalidError


def test_numbers_and_times_are_read() -> None:
    form = {"count": "3", "cores": "1.5", "from": "2026-11-17T09:30+01:00"}
    assert whole_number(form, "count") == 3
    assert number(form, "cores") == 1.5
    assert instant(form, "from").timestamp() == 1_794_904_200


@pytest.mark.parametrize(
    "sent", ["", "x", "1.5.2", "nan", "inf", "1e999", "9999999-01-01", "09:30"]
)
def test_an_invalid_number_or_time_is_refused_and_its_field_named(sent: str) -> None:
    for read in (whole_number, number, instant):
        with pytest.raises(InvalidError, match=r"^field: must be"):
            read({"field": sent}, "field")
    with pytest.raises(InvalidError):
        whole_number({}, "field")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"^field: must have a time zone"):
        instant({"field": "2026-11-17T09:30"}, "field")


def test_a_body_has_the_fields_of_the_form_and_what_stands_for_empty_ones() -> None:
    fields = {"name": TEXT, "note": TEXT_OR_NONE, "size": NUMBER, "most": WHOLE_OR_NONE}
    fields |= {"tags": WORDS, "kinds": ANY_WORDS, "text": ANY_TEXT, "is_public": FLAG}
    form = {"name": "a", "size": "1.5", "most": "3", "tags": "a, b  c", "is_public": "on"}
    nothing = {"note": None, "kinds": (), "text": ""}
    assert body_of(form | {"other": "x"}, fields) == nothing | {
        "name": "a",
        "size": 1.5,
        "most": 3,
        "tags": ["a", "b", "c"],
        "is_public": True,
    }
    assert body_of({}, fields) == nothing | {"most": None, "is_public": False}


def test_a_variable_is_bound_if_hosts_are_named() -> None:
    form = {"value": "v", "methods": "GET"}
    assert body_of(form, VARIABLE) == {"value": "v", "secret": False}
    bound = body_of(form | {"binding": "a.example, b.example", "secret": "on"}, VARIABLE)
    assert bound["binding"] == {"hosts": ["a.example", "b.example"], "methods": ["GET"]}
