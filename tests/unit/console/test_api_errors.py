"""An error of the API, as a page shows it."""

from sandyard.console.api import ApiError


def test_mistakes_are_named_by_their_field() -> None:
    mistakes = [
        {"in": "body", "field": "cpu_spec", "message": "must be at most 8"},
        {"in": "body", "field": "", "message": "must be an object"},
    ]
    error = ApiError(400, {"code": "INVALID_REQUEST", "details": {"mistakes": mistakes}})
    assert error.facts == [("cpu_spec", "must be at most 8"), ("body", "must be an object")]


def test_other_details_are_shown_with_their_names() -> None:
    details = {"resource": "sandboxes", "in_use": 5, "allowed_from": ["available"]}
    assert ApiError(409, {"details": details}).facts == [
        ("resource", "sandboxes"),
        ("in use", "5"),
        ("allowed from", '["available"]'),
    ]


def test_an_error_without_details_has_no_facts() -> None:
    assert ApiError(404, {"code": "NOT_FOUND", "details": None}).facts == []
