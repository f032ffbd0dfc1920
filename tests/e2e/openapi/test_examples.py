"""Each body and each answer in JSON has an example in the document, which fits its schema."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.support.documents.documented_calls import operations_of

Where = tuple[str, str]
"""A call, and its body or the status of an answer."""
_DOCUMENT = "urn:document"
_REGISTRIES: dict[int, tuple[dict[str, Any], jsonschema_rs.Registry]] = {}
"""The components of each document, read once for all schemas that refer to them."""


def schemas_in(document: dict[str, Any]) -> Iterator[tuple[Where, dict[str, Any]]]:
    """The schema of every body and of every answer of success that is JSON."""
    for call, operation in operations_of(document).items():
        places = {"body": operation.get("requestBody", {})}
        places |= {code: a for code, a in operation["responses"].items() if code < "300"}
        for place, described in places.items():
            if "application/json" in described.get("content", {}):
                yield (call, place), described["content"]["application/json"]["schema"]


def answers_in(document: dict[str, Any]) -> Iterator[tuple[Where, str, dict[str, Any]]]:
    """Every answer that is no JSON, or an error, with its media type and what is said of it."""
    for call, operation in operations_of(document).items():
        for code, answer in operation["responses"].items():
            for media_type, described in answer.get("content", {}).items():
                if code >= "300" or media_type != "application/json":
                    yield (call, code), media_type, described


def examples_of(document: dict[str, Any], schema: dict[str, Any]) -> list[Any]:
    """Those of the schema itself, or of the component that it refers to."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    examples: list[Any] = schema.get("examples", [])
    return examples


def faults_of(document: dict[str, Any], schema: dict[str, Any], example: Any) -> list[str]:
    if id(document) not in _REGISTRIES:
        components = {"components": document["components"]}
        _REGISTRIES[id(document)] = document, jsonschema_rs.Registry([(_DOCUMENT, components)])
    _, registry = _REGISTRIES[id(document)]
    within = json.loads(json.dumps(schema).replace('"#/', f'"{_DOCUMENT}#/'))
    validator = jsonschema_rs.Draft202012Validator(within, validate_formats=True, registry=registry)
    return [error.message for error in validator.iter_errors(example)]


def test_each_body_and_answer_has_an_example(document: dict[str, Any]) -> None:
    found = dict(schemas_in(document))
    assert len({call for call, _ in found}) >= 80
    assert sum(place == "body" for _, place in found) >= 20
    assert [where for where, schema in found.items() if not examples_of(document, schema)] == []


def test_each_error_and_each_text_has_an_example(document: dict[str, Any]) -> None:
    found = list(answers_in(document))
    assert {media_type for _, media_type, _ in found} >= {"text/plain", "text/csv"}
    without = {
        (where, media_type)
        for where, media_type, described in found
        if "example" not in described and described["schema"].get("format") != "binary"
    }
    assert without == set()
    faults = {
        where: told
        for where, media_type, described in found
        if "example" in described
        and (told := faults_of(document, described["schema"], described["example"]))
    }
    assert faults == {}


def test_each_parameter_says_what_it_is(document: dict[str, Any]) -> None:
    silent = {
        (call, parameter["name"])
        for call, operation in operations_of(document).items()
        for parameter in operation.get("parameters", [])
        if not parameter.get("description")
    }
    assert silent == set()


def test_each_example_fits_its_schema(document: dict[str, Any]) -> None:
    faults = {
        where: told
        for where, schema in schemas_in(document)
        for example in examples_of(document, schema)
        if (told := faults_of(document, schema, example))
    }
    assert faults == {}


def test_each_example_of_an_answer_shows_every_field(document: dict[str, Any]) -> None:
    """Also those of nested schemas, so that nothing is left for a reader to guess."""
    for (call, place), schema in schemas_in(document):
        if place != "body" and "$ref" in schema:
            component = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            for example in examples_of(document, schema):
                assert example.keys() == component["properties"].keys(), (call, place)


@pytest.mark.parametrize("wrong", [{}, {"name": 7}, {"name": "a", "surprise": 1}])
def test_the_check_finds_an_example_that_does_not_fit(document: dict[str, Any], wrong: Any) -> None:
    schema = {"$ref": "#/components/schemas/NewProjectBody"}
    assert faults_of(document, schema, wrong)
