"""Every runtime, with a place of its own for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.runtimes import GVISOR, RUNTIMES, WITHOUT_ROOT, RuntimeHost, runtime_host
from tests.support.runtime.sessions import SESSIONS, SessionHost, session_host

_MORE = [pytest.param(name, marks=pytest.mark.torture) for name in (WITHOUT_ROOT, GVISOR)]


_NOT_WITH_GVISOR = (
    # Its processes are not the host's, which this counts.
    "test_all_processes_end_with_it",
    # Its pipes with names exist inside alone.
    "test_only_plain_files_are_read_and_written",
    # Its terminals signal, and then pass the key on as well.
    "test_keys_interrupt_what_runs_in_a_terminal",
)
"""Differences that docs/security.md names."""


_NOT_IN_PODS = (
    # The kubelet evicts a Pod that stores too much; nothing refuses its writes.
    "test_a_full_machine_says_so_and_recovers",
)
"""Differences that docs/kubernetes.md names."""


_NOT_AT_E2B = (
    # Its programs never wait for those who read their output.
    "test_a_run_that_is_paced_waits_for_its_reader",
)
"""Differences that docs/ssh.md names."""


_ALSO_IN_PODS = (
    "test_a_file_is_written_with_its_folders_and_read_back",
    "test_a_large_file_streams_in_pieces",
    "test_a_write_that_breaks_off_leaves_what_was_there",
    "test_names_may_be_odd",
    "test_what_is_not_there_is_missing",
    "test_the_user_may_not_change_the_system",
    "test_another_session_sees_the_same_files",
    "test_a_folder_goes_through_a_tar_and_back",
    "test_what_is_no_whole_archive_is_refused",
    "test_a_watch_tells_what_happens_in_the_folder",
    "test_a_command_tells_its_output_by_stream_and_its_end",
    "test_a_signal_ends_the_process_and_its_group",
    "test_a_run_",
    "test_what_cant_be_run_is_refused",
    "test_input_is_taken_until_it_is_closed",
    "test_a_process_outlives_its_session_and_is_found_again",
    "test_output_is_read_again_from_any_offset_without_gap_or_double",
    "test_a_flood_is_kept_in_part_and_says_what_is_missing",
    "test_the_list_has_all_with_their_tags_oldest_first",
    "test_a_terminal_",
    "test_a_port_",
    "test_a_machine_that_ended_",
    "test_a_watch_ends_with_the_machine",
)
"""Of the sessions: one of each kind. The others go through the same code as on this machine or at
E2B's double."""


_AS_ELSEWHERE = (
    "test_nothing_is_written_if_a_path_is_not_safe_or_it_is_too_much",
    "test_no_link_leads_out",
    "test_new_lines_alone_can_be_followed",
    "test_of_one_that_has_ended_the_last_lines_are_followed",
    "test_each_failure_in_a_row_is_followed_by_a_longer_pause",
    "test_a_built_in_template_serves_a_page",
    "test_the_environment_reaches_the_program",
    "test_without_a_web_line_there_is_nothing_to_run",
    "test_a_repository_needs_a_procfile",
    "test_of_what_can_not_be_tried_nothing_is_kept",
)
"""Of the runs: what programs and files do alike wherever they are."""


def _is_a_repeat(item: pytest.Item) -> bool:
    if "[kubernetes" not in item.name:
        return False
    if item.path.parent.name == "sessions":
        return not item.name.startswith(_ALSO_IN_PODS)
    return item.path.parent.name == "runtime" and item.name.startswith(_AS_ELSEWHERE)


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for each in filter(_is_a_repeat, items):
        each.add_marker(pytest.mark.torture)
    items[:] = [
        each
        for each in items
        if not (GVISOR in each.name and each.name.startswith(_NOT_WITH_GVISOR))
        and not ("kubernetes" in each.name and each.name.startswith(_NOT_IN_PODS))
        and not ("[e2b" in each.name and each.name.startswith(_NOT_AT_E2B))
    ]


@pytest.fixture(params=[*RUNTIMES, *_MORE])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeHost]:
    async with runtime_host(request.param, tmp_path) as host:
        yield host


@pytest.fixture
def runtime(host: RuntimeHost) -> Runtime:
    return host.connect()


@pytest.fixture(params=[*SESSIONS, *_MORE])
async def machine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionHost]:
    async with session_host(request.param, tmp_path) as machine:
        yield machine


@pytest.fixture
async def session(machine: SessionHost) -> Session:
    return await machine.connect()
