"""The contract `rooms` of `.importlinter` catches what a kind of module must not import."""

import grimp
import pytest

from tests.support.import_contracts import kind_of, kinds_of, violations

PART = "part"


def graph_of(importer: str, imported: str) -> grimp.ImportGraph:
    graph = grimp.ImportGraph()
    graph.add_module(PART)
    for module in (importer, imported):
        graph.add_module(module, is_squashed=not module.startswith(PART))
    graph.add_import(importer=importer, imported=imported)
    return graph


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("part.pool.model", "model"),
        ("part.pool.hold_model", "model"),
        ("part.pool.errors", "error"),
        ("part.pool.ports", "port"),
        ("part.pool.service", "use case"),
        ("part.pool.stores.sql_claims", "store"),
        ("part.accounts.sql", "store"),
        ("part.pool.http.admin", "endpoint"),
        ("part.accounts.admin_http", "endpoint"),
        ("part.wiring.model", "wiring"),
    ],
)
def test_the_kind_of_a_module_follows_from_its_name(module: str, kind: str) -> None:
    assert kind_of(module, PART, {}) == kind


def test_a_module_can_be_given_another_kind() -> None:
    kinds = kinds_of(["part.access.principal = model"])
    assert kind_of("part.access.principal", PART, kinds) == "model"


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("part.pool.model", "part.pool.service"),
        ("part.pool.model", "sqlalchemy"),
        ("part.pool.ports", "fastapi"),
        ("part.pool.stores.sql", "part.pool.service"),
        ("part.pool.stores.sql", "starlette"),
        ("part.pool.service", "part.pool.stores.sql"),
        ("part.pool.service", "part.pool.http"),
        ("part.pool.service", "sqlalchemy"),
        ("part.pool.http", "part.pool.stores.sql"),
        ("part.queue.model", "part.pool.stores.sql"),
    ],
)
def test_an_import_against_the_order_is_found(importer: str, imported: str) -> None:
    found = list(violations(graph_of(importer, imported), PART, {}))
    assert [(each.importer, each.imported) for each in found] == [(importer, imported)]


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("part.pool.http", "part.pool.service"),
        ("part.pool.service", "part.queue.service"),
        ("part.pool.stores.sql", "sqlalchemy"),
        ("part.pool.stores.sql", "part.pool.model"),
        ("part.wiring.pool", "part.pool.stores.sql"),
    ],
)
def test_an_import_downwards_is_allowed(importer: str, imported: str) -> None:
    assert not list(violations(graph_of(importer, imported), PART, {}))
