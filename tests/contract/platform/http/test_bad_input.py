"""Every field at its bounds and beyond them: taken, or a 400 that names the field."""

import json
from typing import Any

from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi, code_of

UNSEEN = [
    "",
    " ",
    " a",
    "a ",
    "a\nb",
    "a\x00b",
    "\x1b[1m",
    "a\x7f",
    "a\x85b",
    "\ud800",
    5,
    True,
    [],
]
"""What no name may be."""
NAMES: tuple[list[Any], list[Any]] = (["a", "a" * 255, "Ä b_c 日本"], [*UNSEEN, "a" * 256, None])
RENAMES: tuple[list[Any], list[Any]] = (["b", "b" * 255, "Ö 日本"], NAMES[1])
SHORT_NAMES: tuple[list[Any], list[Any]] = (["a", "a" * 100], [*UNSEEN, "a" * 101, None])
TEXTS: tuple[list[Any], list[Any]] = (
    [None, "", "a\nb\tc", "a" * 10_000],
    ["a\x00", "\x1b", "a" * 10_001, 5, "\ud800"],
)
PASSWORDS: tuple[list[Any], list[Any]] = (
    ["a" * 10, "ä" * 128, "with \x00 in it"],
    ["a" * 9, "a" * 129, None, 1234567890, "\ud800" * 10],
)
EMAILS: tuple[list[Any], list[Any]] = (
    ["a@b.cd", "A+b.c'd@x-y.Example.COM", "a" * 242 + "@example.com"],
    [
        *("", "a", "a@b", "@b.cd", "a@", "a@@b.cd", "a b@c.de", "a@b..cd", ".a@b.cd", "a.@b.cd"),
        *("Ann <a@b.cd>", '"a b"@c.de', "a@[127.0.0.1]", "a@b.cd\n", "a@b.cd\r\nBcc: x@y.zz"),
        *("a\x00@b.cd", "ä@b.cd", "a@-b.cd", "a" * 243 + "@example.com", None, 5),
    ],
)
USERNAMES: tuple[list[Any], list[Any]] = (
    ["abc", "a" * 100, "A.b_c-9"],
    ["ab", "a" * 101, "a b", "a@b", "ä-ö", "a\x00b", "abc\n", "", None, 5],
)
MONEY: tuple[list[Any], list[Any]] = (
    [None, 0, "0.000001", "999999999999.999999", 999_999_999_999],
    [
        12.5,
        True,
        -1,
        "0.0000001",
        "1000000000000",
        "NaN",
        "Infinity",
        "x",
        [],
        "1e99",
        "1e3",
        " 1 ",
        "1_000",
        "٣",
        "",
        "1.",
    ],
)
URLS: tuple[list[Any], list[Any]] = (
    [
        *("https://example.com/a", "https://example.com:8443/a/b.git", "https://1.2.3.4/a_b~c/"),
        *("builtin:static", "builtin:python-web", "https://example.com/" + "a" * 480),
    ],
    [
        *("", "http://example.com/a", "git://example.com/a", "ssh://git@example.com/a"),
        *("https://user:secret@example.com/a", "https://token@example.com/a", "ext::sh -c id"),
        *("file:///etc/passwd", "https://example.com/a?token=b", "https://example.com/a#b"),
        *("https://", "https:///a", "https://example.com", "git@example.com:a/b.git", "/etc"),
        *("builtin:", "builtin:other", "builtin:../etc", "https://exa mple.com/a", "-u"),
        *("https://example.com/a\nb", "https://[::1]/a", "HTTPS://example.com/a", None, 5),
        *("https://example.com/" + "a" * 481, "https://example.com/a\x00", "https://-x/a"),
        "https://example.com:99999/a",
    ],
)
NUMBERS: list[Any] = ["1", None, True, "NaN", [], {}]
CPUS: tuple[list[Any], list[Any]] = ([1, 1.5, 8], [0.5, 0.99, 8.01, 9, -1, 1e400, *NUMBERS])
MEMORY: tuple[list[Any], list[Any]] = ([0.5, 1, 16], [0.4, 0, 16.1, 17, -1, *NUMBERS])
TAGS: tuple[list[Any], list[Any]] = (
    [None, [], ["a"], ["a" * 50] * 20],
    [["a" * 51], ["a"] * 21, [""], ["a\n"], [5], "a", {"a": 1}],
)
REFS: tuple[list[Any], list[Any]] = (
    [None, "main", "v1.2.3", "feature/a-b", "a" * 200],
    ["", "-x", "a..b", "a b", "/a", "a/", "a" * 201, "--upload-pack=id", "a\n", 5],
)
FOLDERS: tuple[list[Any], list[Any]] = (
    [None, "web", "apps/web", "a-b_c/d.e"],
    ["", "/etc", "..", "a/../b", "a//b", ".git", "a/", "a" * 501, 5],
)
SECRETS: tuple[list[Any], list[Any]] = ([None, "A_TOKEN"], ["", "A-B", "1A", "a" * 129, 5])
NETWORKS: tuple[list[Any], list[Any]] = ([None, "none", "packages", "internet"], ["", "all", 5])
FLAGS: tuple[list[Any], list[Any]] = ([True, False], ["true", 1, "yes", None, []])

TEMPLATE = {
    "name": "base",
    "category": "web",
    "language": "go",
    "repository_url": "https://example.com/a",
}
SIGNUP = {"email": "a@b.cd", "username": "abc", "password": PASSWORD}
FIELDS: list[tuple[str, str, dict[str, Any], str, tuple[list[Any], list[Any]]]] = [
    ("POST", "/auth/signup", SIGNUP, "email", EMAILS),
    ("POST", "/auth/signup", SIGNUP, "username", USERNAMES),
    ("POST", "/auth/signup", SIGNUP, "password", PASSWORDS),
    ("POST", "/auth/signup", SIGNUP, "full_name", ([None, *NAMES[0]], NAMES[1][:-1])),
    ("POST", "/auth/resend", {}, "email", EMAILS),
    ("POST", "/auth/password/forgot", {}, "email", EMAILS),
    ("POST", "/auth/verify", {}, "token", ([], ["", "a" * 256, None, 5, "\ud800"])),
    ("POST", "/auth/login", {"password": "a"}, "login", ([], ["", "a\x00", "a" * 255, None, 5])),
    ("POST", "/auth/login", {"login": "abc"}, "password", ([], ["", "a" * 129, None, 5])),
    ("POST", "/auth/password/reset", {"token": "a"}, "password", ([], PASSWORDS[1])),
    (
        *("POST", "/auth/password/change", {"current_password": PASSWORD}, "new_password"),
        ([], PASSWORDS[1]),
    ),
    ("PATCH", "/me", {}, "full_name", ([None, *NAMES[0]], NAMES[1][:-1])),
    ("PATCH", "/me", {}, "spend_threshold", MONEY),
    ("POST", "/api-keys", {}, "name", NAMES),
    ("POST", "/api-keys", {"name": "x"}, "description", ([], TEXTS[1])),
    ("PATCH", "/api-keys/{key_id}", {}, "name", RENAMES),
    ("PATCH", "/api-keys/{key_id}", {}, "description", TEXTS),
    ("POST", "/projects", {}, "name", NAMES),
    ("PATCH", "/projects/{project_id}", {}, "name", RENAMES),
    ("PATCH", "/projects/{project_id}", {}, "description", TEXTS),
    ("POST", "/templates", TEMPLATE, "name", NAMES),
    ("PATCH", "/templates/{template_id}", {}, "name", RENAMES),
    ("PATCH", "/templates/{template_id}", {}, "description", TEXTS),
    ("PATCH", "/templates/{template_id}", {}, "category", SHORT_NAMES),
    ("PATCH", "/templates/{template_id}", {}, "language", SHORT_NAMES),
    ("PATCH", "/templates/{template_id}", {}, "repository_url", URLS),
    ("PATCH", "/templates/{template_id}", {}, "min_cpu_required", CPUS),
    ("PATCH", "/templates/{template_id}", {}, "min_memory_required", MEMORY),
    ("PATCH", "/templates/{template_id}", {}, "tags", TAGS),
    ("PATCH", "/templates/{template_id}", {}, "repository_ref", REFS),
    ("PATCH", "/templates/{template_id}", {}, "repository_folder", FOLDERS),
    ("PATCH", "/templates/{template_id}", {}, "repository_secret", SECRETS),
    ("PATCH", "/templates/{template_id}", {}, "network", NETWORKS),
    ("PATCH", "/templates/{template_id}", {}, "is_public", FLAGS),
    ("PATCH", "/templates/{template_id}", {}, "is_official", ([], [True, False, None])),
    ("POST", "/templates", TEMPLATE, "min_cpu_required", ([], CPUS[1])),
    ("POST", "/templates", TEMPLATE, "min_memory_required", ([], MEMORY[1])),
    ("POST", "/templates", TEMPLATE, "repository_url", ([], URLS[1])),
    ("POST", "/admin/notifications", {"message": "m"}, "title", NAMES),
    ("POST", "/admin/notifications", {"title": "t"}, "message", (["m\nn"], ["", *TEXTS[1]])),
    (
        *("POST", "/admin/notifications", {"title": "t", "message": "m"}, "type"),
        (["info", "warning", "error", "success"], ["", "fatal", None, 5]),
    ),
    ("PUT", "/admin/users/{account_id}/role", {}, "role", (["user"], ["root", "", None, 5])),
]
LISTS = ["/projects", "/templates", "/api-keys", "/notifications", "/admin/users"]
BAD_PARAMETERS = [
    *({"limit": value} for value in ("0", "101", "-1", "x", "1.5", "")),
    *({"cursor": value} for value in ("", "x", "a" * 2000, "é", "eyJhIjoxfQ")),
]
BAD_FILTERS = [
    *(("/projects", {"status": value}) for value in ("", "gone", "ACTIVE")),
    *(("/projects", {"is_default": value}) for value in ("", "maybe")),
    *((path, {"sort": "id"}) for path in ("/projects", "/templates", "/api-keys", "/admin/users")),
    *((path, {"q": value}) for path in ("/projects", "/admin/users") for value in ("", "\x00")),
    *((path, {"q": "a" * 101}) for path in ("/projects", "/templates", "/api-keys")),
    *(("/templates", {name: "\x00"}) for name in ("category", "language", "tag", "q")),
    ("/templates", {"visibility": "secret"}),
    ("/api-keys", {"is_active": "x"}),
    *(("/notifications", {"type": value}) for value in ("", "fatal")),
    ("/notifications", {"unread": "x"}),
    *(("/admin/users", {"role": value}) for value in ("", "root")),
]


def encoded(value: Any) -> bytes:
    """JSON as a careless client sends it: lone surrogates and all."""
    return json.dumps(value).encode()


async def things(api: PlatformApi) -> tuple[Caller, dict[str, str]]:
    admin, other = await api.admin(), await api.account()
    ids = {"account_id": other.account_id}
    ids |= await api.post("/projects", admin, {"name": "base"})
    ids |= await api.post("/templates", admin, TEMPLATE)
    ids |= await api.post("/api-keys", admin, {"name": "base"})
    return admin, ids


async def test_every_field_at_and_beyond_its_bounds(api: PlatformApi) -> None:
    admin, ids = await things(api)
    headers = {"Content-Type": "application/json"}
    tried = 0
    for method, path, base, field, (good, bad) in FIELDS:
        for value in [*good, *bad]:
            body = encoded(base | {field: value})
            answer = await api.call(
                method, path.format(**ids), admin, content=body, headers=headers
            )
            what = (method, path, field, value)
            if value in good and not any(value is each for each in bad):
                assert answer.is_success, (what, answer.text)
            else:
                assert code_of(answer) == (400, "INVALID_REQUEST"), (what, answer.text)
                assert field in answer.json()["error"]["message"], (what, answer.text)
            tried += 1
        unknown = await api.call(method, path.format(**ids), admin, json=base | {"surprise": 1})
        assert unknown.status_code == 400, (method, path)
        assert "surprise" in unknown.json()["error"]["message"]
    assert tried > 400


async def test_missing_fields_and_no_json_are_told(api: PlatformApi) -> None:
    admin, ids = await things(api)
    for method, path, base, field, _ in FIELDS:
        there = path.format(**ids)
        if method == "POST" and field not in (
            *("full_name", "description", "type", "tags"),
            *("min_cpu_required", "min_memory_required", "repository_url"),
        ):
            body = {name: value for name, value in base.items() if name != field}
            answer = await api.call(method, there, admin, json=body)
            assert code_of(answer) == (400, "INVALID_REQUEST"), (path, field)
            assert field in answer.json()["error"]["message"]
        for content in (b"", b"{", b"[]", b"null", b'"a"', b"\xff"):
            answer = await api.call(
                method, there, admin, content=content, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400, (path, content, answer.text)


async def test_parameters_of_listings(api: PlatformApi) -> None:
    admin = await api.admin()
    for path in LISTS:
        for limit in ("1", "100"):
            await api.get(path, admin, limit=limit)
        for parameters in BAD_PARAMETERS:
            answer = await api.call("GET", path, admin, params=parameters)
            assert answer.status_code == 400, (path, parameters, answer.text)
    for path, parameters in BAD_FILTERS:
        answer = await api.call("GET", path, admin, params=parameters)
        assert code_of(answer) == (400, "INVALID_REQUEST"), (path, parameters)
        [name] = parameters
        assert name in answer.json()["error"]["message"]


async def test_a_refused_password_is_not_repeated_in_the_answer(api: PlatformApi) -> None:
    for body in (
        SIGNUP | {"password": "short-1"},
        SIGNUP | {"password": "long-" * 50},
        SIGNUP | {"password": PASSWORD, "email": "x"},
        {"surprise": PASSWORD},
    ):
        answer = await api.call("POST", "/auth/signup", json=body)
        assert answer.status_code == 400
        for secret in ("short-1", "long-long", PASSWORD):
            assert secret not in answer.text


async def test_other_methods_are_refused(api: PlatformApi) -> None:
    admin = await api.admin()
    for method, path in (
        ("PUT", "/me"),
        ("DELETE", "/me"),
        ("GET", "/auth/login"),
        ("PUT", "/projects"),
        ("PATCH", "/notifications/not-aaaaaaaaaaaa"),
    ):
        answer = await api.call(method, path, admin)
        assert code_of(answer) == (405, "METHOD_NOT_ALLOWED"), (method, path)
