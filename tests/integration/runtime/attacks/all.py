"""All attacks by their names."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from sandyard.runtime.local.runtime import LocalRuntime
from tests.integration.runtime.attacks.files import (
    a_procfile_that_is_a_link_is_none,
    links_do_not_lead_written_files_outside,
    shut_folders_hide_nothing,
    what_it_leaves_for_the_snapshot_does_no_harm,
)
from tests.integration.runtime.attacks.isolation import (
    it_finds_no_socket_to_swap,
    it_kills_no_process_of_the_host,
    it_makes_no_namespace_and_gains_no_right,
    it_reaches_no_network,
    it_sees_no_file_of_the_host,
    it_writes_nowhere_but_at_home,
)
from tests.integration.runtime.attacks.resources import (
    a_fork_bomb_ends_with_its_sandbox,
    folders_in_memory_are_bounded,
    it_forks_without_end_in_vain,
    it_keeps_to_its_processors,
    it_stores_no_more_than_its_share,
    many_processes_take_no_more_either,
    memory_of_nobody_is_not_given,
    memory_that_is_shared_and_hidden_is_found,
    one_process_takes_no_more_memory_than_its_share,
)

Attack = Callable[[LocalRuntime, Path], Awaitable[None]]


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        it_sees_no_file_of_the_host,
        it_writes_nowhere_but_at_home,
        it_kills_no_process_of_the_host,
        it_forks_without_end_in_vain,
        a_fork_bomb_ends_with_its_sandbox,
        one_process_takes_no_more_memory_than_its_share,
        many_processes_take_no_more_either,
        memory_that_is_shared_and_hidden_is_found,
        folders_in_memory_are_bounded,
        memory_of_nobody_is_not_given,
        it_reaches_no_network,
        it_makes_no_namespace_and_gains_no_right,
        it_keeps_to_its_processors,
        it_finds_no_socket_to_swap,
        it_stores_no_more_than_its_share,
        what_it_leaves_for_the_snapshot_does_no_harm,
        shut_folders_hide_nothing,
        links_do_not_lead_written_files_outside,
        a_procfile_that_is_a_link_is_none,
    )
}
