"""All attacks by their names."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.integration.runtime.attacks.entered import (
    a_child_of_the_agent_shows_nothing_of_the_host,
    a_command_has_no_descriptor_of_ours,
    a_flood_of_output_takes_little_of_the_host,
    processes_that_it_stops_hold_up_nobody_else,
    what_it_kills_is_never_told_as_whole,
)
from tests.integration.runtime.attacks.files import (
    a_procfile_that_is_a_link_is_none,
    links_do_not_lead_written_files_outside,
    names_too_long_for_one_path_are_restored,
    shut_folders_hide_nothing,
    what_it_leaves_for_the_snapshot_does_no_harm,
)
from tests.integration.runtime.attacks.isolation import (
    it_finds_no_socket_to_swap,
    it_kills_no_process_of_the_host,
    it_makes_no_namespace_and_gains_no_right,
    it_sees_no_file_of_the_host,
    it_takes_no_command_over_before_its_limits_hold,
    it_writes_nowhere_but_at_home,
)
from tests.integration.runtime.attacks.memory import (
    buffers_grow_no_larger,
    chains_of_short_processes_are_counted,
    folders_in_memory_are_counted_behind_a_zombie,
    hidden_pages_behind_many_mappings_are_found,
    many_descriptors_do_not_slow_the_count_down,
    names_in_memory_are_bounded,
    pages_that_nobody_maps_are_found,
    threads_without_a_leader_are_counted,
    watches_of_epoll_are_counted,
    what_nobody_reads_from_pipes_is_counted,
    what_nobody_reads_from_sockets_is_counted,
)
from tests.integration.runtime.attacks.network import (
    endless_names_delay_and_fill_nothing,
    it_changes_nothing_of_its_network,
    it_reaches_no_network,
    nobody_answers_for_hosts_outside,
)
from tests.integration.runtime.attacks.resources import (
    a_database_does_without_asynchronous_io,
    a_fork_bomb_ends_with_its_sandbox,
    folders_in_memory_are_bounded,
    it_forks_without_end_in_vain,
    it_keeps_to_its_processors,
    its_terminals_are_bounded,
    many_processes_take_no_more_either,
    memory_of_nobody_is_not_given,
    memory_that_is_shared_and_hidden_is_found,
    one_process_takes_no_more_memory_than_its_share,
    the_kernel_takes_it_before_the_server,
)
from tests.integration.runtime.attacks.storage import (
    a_deleted_file_of_a_thread_whose_process_seems_gone_counts,
    a_deleted_file_on_its_way_counts,
    a_deleted_file_that_is_mapped_counts,
    it_stores_no_more_than_its_share,
    many_empty_files_are_bounded,
)
from tests.integration.runtime.attacks.swaps import folders_that_turn_into_links_lead_nowhere
from tests.support.runtime.local_runtime import LocalRuntime

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
        folders_in_memory_are_bounded,
        memory_of_nobody_is_not_given,
        a_database_does_without_asynchronous_io,
        its_terminals_are_bounded,
        it_reaches_no_network,
        it_changes_nothing_of_its_network,
        nobody_answers_for_hosts_outside,
        endless_names_delay_and_fill_nothing,
        it_makes_no_namespace_and_gains_no_right,
        it_keeps_to_its_processors,
        the_kernel_takes_it_before_the_server,
        it_finds_no_socket_to_swap,
        it_takes_no_command_over_before_its_limits_hold,
        folders_in_memory_are_counted_behind_a_zombie,
        names_in_memory_are_bounded,
        buffers_grow_no_larger,
        it_stores_no_more_than_its_share,
        a_deleted_file_that_is_mapped_counts,
        a_deleted_file_of_a_thread_whose_process_seems_gone_counts,
        a_deleted_file_on_its_way_counts,
        many_empty_files_are_bounded,
        names_too_long_for_one_path_are_restored,
        what_it_leaves_for_the_snapshot_does_no_harm,
        shut_folders_hide_nothing,
        links_do_not_lead_written_files_outside,
        a_procfile_that_is_a_link_is_none,
        folders_that_turn_into_links_lead_nowhere,
        a_command_has_no_descriptor_of_ours,
        a_child_of_the_agent_shows_nothing_of_the_host,
        a_flood_of_output_takes_little_of_the_host,
        processes_that_it_stops_hold_up_nobody_else,
        what_it_kills_is_never_told_as_whole,
    )
}
"""With bubblewrap and a kernel of its own; where that answers otherwise, the attack says so."""
HIDDEN_MEMORY: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        threads_without_a_leader_are_counted,
        hidden_pages_behind_many_mappings_are_found,
        pages_that_nobody_maps_are_found,
        memory_that_is_shared_and_hidden_is_found,
        what_nobody_reads_from_sockets_is_counted,
        what_nobody_reads_from_pipes_is_counted,
        chains_of_short_processes_are_counted,
        watches_of_epoll_are_counted,
        many_descriptors_do_not_slow_the_count_down,
    )
}
"""Memory that only a kernel of its own counts: with bubblewrap the count is advisory."""
WITH_OWN_KERNEL = HIDDEN_MEMORY | ATTACKS
