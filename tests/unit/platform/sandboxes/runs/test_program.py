"""What the runtime is told of a sandbox."""

from dataclasses import replace

from sandyard.platform.sandboxes.runs.program import program_of
from sandyard.runtime.model import Repository, StartCommand
from tests.unit.platform.sandboxes.examples import OTHER, OWNER, SANDBOX, TEMPLATE

PRIVATE = replace(
    TEMPLATE,
    is_official=False,
    owner_account_id=OWNER,
    repository_url="https://example.org/x",
    repository_ref="v1",
    repository_secret="TOKEN",
)


def test_a_private_repository_is_fetched_with_the_secret_that_is_named() -> None:
    sandbox = replace(SANDBOX, network="internet", environment="debian", folder="web")
    program = program_of(sandbox, PRIVATE, {"TOKEN": "t", "OTHER": "o"})
    assert program.source == Repository("https://example.org/x", "v1", "web", "t")
    assert (program.network, program.root) == ("internet", "debian")
    assert program.environment == {"TOKEN": "t", "OTHER": "o"}


def test_nobody_elses_template_gets_a_secret() -> None:
    foreign = replace(PRIVATE, owner_account_id=OTHER, is_public=True)
    source = program_of(SANDBOX, foreign, {"TOKEN": "t"}).source
    assert isinstance(source, Repository)
    assert source.token is None


def test_a_secret_that_is_not_set_is_none() -> None:
    source = program_of(SANDBOX, PRIVATE, {}).source
    assert isinstance(source, Repository)
    assert source.token is None


def test_without_its_template_it_has_its_own_files_and_folder() -> None:
    sandbox = replace(SANDBOX, latest_snapshot_id="s", folder="web")
    program = program_of(sandbox, None, {})
    assert (program.source, program.snapshot_id) == (Repository("", folder="web"), "s")


def test_the_start_command_of_a_built_template_is_the_program() -> None:
    built = replace(TEMPLATE, start_command="serve", working_folder="/srv", default_user="101:33")
    own = replace(SANDBOX, program_policy="on_failure")
    assert program_of(own, built, {}).source == StartCommand("serve", "/srv", "101:33")
    made_by_e2b_s_api = replace(SANDBOX, program_policy=None)
    assert isinstance(program_of(made_by_e2b_s_api, built, {}).source, Repository)
