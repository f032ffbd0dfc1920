"""Bugs of the queue, of reservations, clients, the provider and event delivery."""

from tests.mutants.model import Mutant

_CONTRACT = "tests/contract/broker"

SERVICE = (
    Mutant(
        "a-newcomer-overtakes-the-queue",
        "What becomes free is available for a moment, and a call that never waited gets it.",
        "broker/queue/assignment.py",
        "outcomes = dict.fromkeys(await self._reserve_freed(transitions), True)",
        "outcomes = dict.fromkeys(set[int](), True)",
        (
            (
                f"{_CONTRACT}/queue/test_queue.py"
                "::test_a_ticket_queued_between_the_read_and_the_write_is_served_after_it[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-ticket-is-overtaken",
        "Tickets of one urgency are not served in the order in which they came.",
        "broker/queue/model.py",
        "return self.urgency, self.ticket_id",
        "return self.urgency, self.key",
        ("tests/unit/broker/queue/test_model.py",),
    ),
    Mutant(
        "a-lost-place",
        "A ticket whose sandbox breaks goes to the end of the queue.",
        "broker/queue/model.py",
        'changed(ticket, replace(ticket, sandbox_id=None), "ticket.waiting", cause)',
        'changed(ticket, replace(ticket, sandbox_id=None, ticket_id="z"), "ticket.waiting", cause)',
        ("tests/unit/broker/queue/test_model.py",),
    ),
    Mutant(
        "a-queue-of-the-dead",
        "A sandbox is kept for a track that has stopped asking.",
        "broker/queue/assignment.py",
        "return ticket.sandbox_id is None and not is_abandoned",
        "return ticket.sandbox_id is None",
        (
            (
                f"{_CONTRACT}/queue/test_queue.py"
                "::test_nothing_is_kept_for_those_who_stopped_asking_though_none_is_dropped_yet[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-reservation-is-eaten",
        "A claim of any track takes a sandbox that is reserved.",
        "broker/pool/stores/sql_claims.py",
        """free.where(_column.status == sa.literal_column("'available'"))""",
        """free.where(_column.status.in_(("available", "reserved")))""",
        (
            (
                f"{_CONTRACT}/reservations/test_reservations.py"
                "::test_what_is_reserved_no_stranger_gets_and_its_tracks_get_first[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-reservation-is-short",
        "A reservation that loses a sandbox still counts it, and gets no other.",
        "broker/reservations/model.py",
        "kept=max(0, reservation.kept - 1)",
        "kept=reservation.kept",
        (
            (
                f"{_CONTRACT}/reservations/test_reservations.py"
                "::test_a_lost_sandbox_is_missing_again_and_replaced[sqlite]"
            ),
        ),
    ),
    Mutant(
        "overbooked",
        "Two reservations for the same hour get more sandboxes than there are.",
        "broker/reservations/model.py",
        "if booking.count > possible:",
        "if booking.count > capacity:",
        ("tests/unit/broker/reservations/test_model.py",),
    ),
    Mutant(
        "a-release-frees-a-newer-lease",
        "A late repeat of a release frees what the same track and key have got since.",
        "broker/clients/access.py",
        "if caller.max_leases is not None and not await self._is_in_use(lease_key):",
        "if caller.max_leases is not None:",
        (
            (
                f"{_CONTRACT}/clients/test_clients.py"
                "::test_a_late_repeat_of_giving_up_does_not_free_the_slot_of_a_newer_lease[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-create-whose-answer-was-lost",
        "The provider has made a sandbox, nobody knows, and another one is made.",
        "broker/provider/service.py",
        "        await self._adopt_lost(report)\n",
        "",
        (
            (
                f"{_CONTRACT}/provider/test_autoscaling.py"
                "::test_what_a_lost_answer_has_made_is_adopted_and_not_made_again[sqlite]"
            ),
        ),
    ),
    Mutant(
        "webhooks-out-of-order",
        "Events of one subject are sent at the same time, and arrive in any order.",
        "broker/delivery/stream.py",
        "            subject = logged.event.subject\n",
        "            subject = logged.event_id\n",
        (
            (
                f"{_CONTRACT}/delivery/test_delivery.py"
                "::test_all_arrive_in_order_though_half_fail_and_the_dispatcher_is_broken_off[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-skipped-event",
        "The position moves past a batch whose events are not all delivered.",
        "broker/delivery/stream.py",
        "while self._open and not self._open[0].left:",
        "while self._open:",
        (
            (
                f"{_CONTRACT}/delivery/test_delivery.py"
                "::test_all_arrive_in_order_though_half_fail_and_the_dispatcher_is_broken_off[sqlite]"
            ),
        ),
    ),
    Mutant(
        "the-pools-level-flaps",
        "Ours until 0.2.0: 74 events `pool.low` in 45 minutes, of a pool around its threshold.",
        "broker/provider/model.py",
        "if level == before.level or (is_better and available < policy.recovered_available):",
        "if level == before.level:",
        ("tests/unit/broker/provider/test_autoscaling_model.py",),
    ),
)
