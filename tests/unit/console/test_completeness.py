"""The console does what the API does: each operation of the API's document is called by a page,
with each of its fields, or it is an exception with a reason.

The calls are read from the console's own code: the paths in its screens, and the links in its
templates.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
from sandyard_client.operations import operations

import sandyard.console
from sandyard.console.screens import labs

CONSOLE = Path(sandyard.console.__file__).parent
PARTS = {"platform": "/api/v1", "broker": "/v1", "telemetry": "/telemetry/v1"}
WORDS = {
    "action": [*labs.ACTIONS, *labs.BULK],
    "what": ["clients", "webhooks"],
    "each": ["start", "stop", "restart"],
}
"""What variables in paths stand for, if not for an id."""
SCRIPTS = {"data-files": ("files.js", ["GET", "PUT", "DELETE"])}
"""Which script calls the link in this attribute, and how; others are followed."""
EXCEPTIONS = {
    "programs call it with a track's token, not people": """
        allocate_sandbox release_lease get_leased_sandbox extend_lease replace_sandbox
        mark_sandbox_for_deletion queue_for_sandbox leave_queue""",
    "devices call it": "register_device send_readings",
    "monitoring reads it; the admin's page shows the health of each part": """
        get_health get_readiness get_metrics""",
    "is also a job, which the page of jobs runs": """
        auto_delete_stale_pool_sandboxes clean_up_pool expire_leases sync_pool""",
    "the pages of /account, which need no login, call it": """
        forgot_password reset_password verify_email resend_verification""",
    "its listing has all of it": """
        get_api_key get_image get_notification get_reservation get_user get_volume stat_file""",
    "commands are typed in the terminal, which has the page's own credential": """
        run_command get_command get_command_output list_commands kill_command signal_command
        write_command_input create_terminal_token""",
    "folders and moves are made in the terminal, archives sent by programs": """
        make_folder move_file write_folder_tar write_project_tar import_image""",
    "the charts and the export show them": "list_readings list_sandbox_samples",
    "the account's page shows the sums of the month, and `bills.csv` has each": """
        list_bills list_usage sum_bills""",
    "all are marked read at once": "read_notification",
    "the events of Telemetry have it": "get_device_key_history",
    "for agents; the page shows the preview itself": "look_at_preview",
    "a domain is proven by what serves it: a program's two steps": """
        add_publication_domain remove_publication_domain""",
}
"""The reason, and the operations that no page calls."""
FIELDS = {
    "labels are for programs": {"create_sandbox": "metadata"},
    "whole trees are sent by programs": {"change_project_files": "replace"},
    "the page has filters; single ones are changed on their own pages": {
        "bulk_hold_pool_sandboxes": "names",
        "bulk_quarantine_pool_sandboxes": "names",
        "bulk_restore_pool_sandboxes": "names",
    },
    "the account's page has it": {"sign_up": "full_name"},
    "the same as `environment`": {"create_template": "image", "update_template": "image"},
}
"""The reason, and fields of operations that no page sends."""

Call = tuple[str, str]
"""A method, and a path whose parameters are all called `{}`."""
_CALL = re.compile(r"(?:(GET|POST|PUT|PATCH|DELETE) )?(platform|broker|telemetry)(/.+)")
_METHODS = {"get": "GET", "_or_error": "GET", "find": "GET", "post": "POST"}


def anonymous(path: str) -> str:
    return re.sub(r"{[^}]*}", "{}", path)


OPERATIONS = {
    (each["method"], anonymous(each["path"])): name for name, each in operations().items()
}


class Module:
    """One of the console's modules: its calls, and the words in it."""

    def __init__(self, name: str) -> None:
        self.module = import_module(f"sandyard.console.{name}")
        self.tree = ast.parse((CONSOLE / f"{name.replace('.', '/')}.py").read_text())

    def words(self) -> set[str]:
        """Strings, and the names of arguments."""
        found = {each.value for each in ast.walk(self.tree) if isinstance(each, ast.Constant)}
        named = {each.arg for each in ast.walk(self.tree) if isinstance(each, ast.keyword)}
        return {each for each in found | named if isinstance(each, str)}

    def calls(self) -> Iterator[Call]:
        for statement in self.tree.body:
            assigned = dict(assignments(statement))
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    yield from self._made_by(node, assigned)

    def _made_by(self, node: ast.Call, assigned: dict[str, ast.expr]) -> Iterator[Call]:
        given = [self._texts(each, assigned) for each in node.args]
        functions = [node.func, *node.args[:1]]
        names = [getattr(each, "attr", getattr(each, "id", "")) for each in functions]
        method = next((_METHODS[each] for each in names if each in _METHODS), None)
        if names[0] == "call" and given:
            method = given[0][0]
        for text in (text for texts in given for text in texts):
            found = _CALL.fullmatch(text)
            if found and (found[1] or method):
                yield from expanded(found[1] or str(method), PARTS[found[2]] + found[3])

    def _texts(self, node: ast.expr, assigned: dict[str, ast.expr]) -> list[str]:
        """What this expression may be; variables are in braces."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Name(id=name) if name in assigned and assigned[name] is not node:
                others = {key: value for key, value in assigned.items() if key != name}
                found = self._texts(assigned[name], others)
                return [f"{{{name}}}"] if found == ["{}"] else found
            case ast.Name(id=name):
                known = getattr(self.module, name, None)
                return [known if isinstance(known, str) else f"{{{name}}}"]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                pieces = product(self._texts(left, assigned), self._texts(right, assigned))
                return ["".join(each) for each in pieces]
            case ast.JoinedStr(values=values):
                return ["".join(e) for e in product(*(self._texts(v, assigned) for v in values))]
            case ast.FormattedValue(value=value):
                return self._texts(value, assigned)
            case ast.Subscript(value=ast.Name(id=name)):
                known = getattr(self.module, name, None)
                return [e for e in known.values() if isinstance(e, str)] if known else ["{}"]
        return ["{}"]


def assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The names that are assigned to within it, also several at once, and what they get."""
    for each in ast.walk(statement):
        match each:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = zip(names, values, strict=True)
                yield from ((name.id, value) for name, value in pairs if isinstance(name, ast.Name))


def expanded(method: str, path: str) -> Iterator[Call]:
    """With the words that its variables stand for; only of those paths the API has all."""
    variables = [each for each in re.findall(r"{(\w+)}", path) if each in WORDS]
    for words in product(*(WORDS[each] for each in variables)):
        found = path
        for name, word in zip(variables, words, strict=True):
            found = found.replace(f"{{{name}}}", word)
        if not variables or (method, anonymous(found)) in OPERATIONS:
            yield method, anonymous(found)


def links(template: str) -> Iterator[Call]:
    """Of the API, in the text of a template."""
    names = dict(re.findall(r"{% set (\w+) = url\((.+?)\) %}", template))
    for name, expression in names.items():
        template = template.replace(f"{{{{ {name} }}}}", _path(expression))
    template = re.sub(r"{{ url\((.+?)\) }}", lambda found: _path(found[1]), template)
    template = re.sub(r"{{.+?}}", "{}", template)
    for attribute, path in re.findall(r'([\w-]+)="/console/api(/[^"?]+)', template):
        _, methods = SCRIPTS.get(attribute, ("", ["GET"]))
        yield from ((method, path) for method in methods)


def _path(expression: str) -> str:
    pieces = (each.strip() for each in expression.split("~"))
    return "".join(each[1:-1] if each[0] == "'" else "{}" for each in pieces)


MODULES = [f"screens.{path.stem}" for path in (CONSOLE / "screens").glob("[a-z]*.py")]
MODULES += ["viewer", "forms"]


@cache
def called() -> dict[str, set[str]]:
    """The operations, with the modules whose screens call them."""
    found: dict[str, set[str]] = {}
    made = [(name, call) for name in MODULES for call in Module(name).calls()]
    for template in (CONSOLE / "templates").glob("*.html"):
        made += [("", call) for call in links(template.read_text())]
    for module, call in made:
        if call in OPERATIONS:
            found.setdefault(OPERATIONS[call], set()).add(module)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_the_pages_call_what_the_api_has(name: str) -> None:
    made = set(Module(name).calls())
    assert made - OPERATIONS.keys() == set()


def test_each_operation_is_called_by_a_page_or_is_an_exception() -> None:
    excepted = [name for names in EXCEPTIONS.values() for name in names.split()]
    assert sorted(operations().keys() - called().keys()) == sorted(excepted)


def test_each_field_of_a_call_is_on_a_page_or_is_an_exception() -> None:
    words = {name: Module(name).words() for name in MODULES}
    missing: dict[str, set[str]] = {}
    for name, modules in called().items():
        fields = {each["name"] for each in operations()[name]["fields"] if each["in"] == "body"}
        known = words["forms"].union(*(words[each] for each in modules if each))
        if modules != {""} and fields - known:
            missing[name] = fields - known
    excepted = [(name, set(names.split())) for e in FIELDS.values() for name, names in e.items()]
    assert missing == dict(excepted)


def test_the_scripts_make_the_calls_that_their_links_are_for() -> None:
    for script, methods in SCRIPTS.values():
        text = (CONSOLE / "static" / script).read_text()
        assert all(f'"{each}"' in text for each in methods if each != "GET")
