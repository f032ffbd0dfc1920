"""What a caller is told of a mistake: fields in words, and the methods that a path takes."""

import pytest

from tests.support.platform.in_process import PlatformApi, code_of


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        ("/auth/signup", {"email": "me.at.home"}, "email", "must be an e-mail address"),
        ("/auth/signup", {"username": "a b c"}, "username", "must be letters, digits"),
        ("/projects", {"name": " x"}, "name", "must be one line"),
        ("/templates", {"repository_url": "git@x:y"}, "repository_url", "must be an https:// URL"),
        ("/sandboxes", {"template_id": "TPL_1"}, "template_id", "must be lower-case letters"),
    ],
)
async def test_a_field_that_does_not_match_is_told_in_words(
    api: PlatformApi, path: str, body: dict[str, str], field: str, words: str
) -> None:
    ann = await api.account()
    answer = await api.call("POST", path, ann, json=body)
    assert code_of(answer) == (400, "INVALID_REQUEST")
    mistakes = {
        each["field"]: each["message"] for each in answer.json()["error"]["details"]["mistakes"]
    }
    assert mistakes[field].startswith(words)
    assert "pattern" not in answer.text
    assert "^" not in answer.text


async def test_a_path_that_is_written_out_takes_its_own_methods_alone(api: PlatformApi) -> None:
    ann = await api.account()
    for method in ("GET", "DELETE", "PUT"):
        answer = await api.call(method, "/notifications/read-all", ann)
        assert code_of(answer) == (405, "METHOD_NOT_ALLOWED"), method
        assert answer.headers["Allow"] == "POST"
    one = await api.call("PUT", "/notifications/not-1", ann)
    assert one.headers["Allow"] == "DELETE, GET"
    several = await api.call("DELETE", "/projects", ann)
    assert several.headers["Allow"] == "GET, POST"
    assert (await api.call("POST", "/notifications/read-all", ann)).status_code == 200
