"""Bugs of what the parts share: job leases, and moves between engines."""

from tests.mutants.model import Mutant

_JOBS = "tests/integration/jobs"

SHARED = (
    Mutant(
        "a-job-is-taken-by-two",
        "A job is acquired although another process holds it.",
        "kit/sql/job_leases.py",
        "is_free = sa.or_(table.c.holder.is_(None), table.c.held_until <= now)",
        "is_free = sa.true()",
        (
            (
                f"{_JOBS}/test_leases.py"
                "::TestLeases::test_a_lease_has_one_holder_until_its_time_is_over[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-late-holder-frees-anothers-job",
        "A process that was slow ends the lease of the one that has taken over.",
        "kit/dynamo/job_leases.py",
        'condition="holder = :holder"',
        'condition="holder = :holder OR attribute_exists(holder)"',
        (
            (
                f"{_JOBS}/test_leases.py"
                "::TestDeadHolders::test_a_late_holder_cannot_renew_or_release_the_next_ones_lease[dynamodb]"
            ),
        ),
    ),
    Mutant(
        "a-lease-counts-from-its-answer",
        "The wrong clock: the answer was late, and another process has taken over meanwhile.",
        "kit/jobs.py",
        "        safe_until = asked_at + safe_for\n",
        "        safe_until = self._clock.now() + safe_for\n",
        (
            (
                f"{_JOBS}/test_breaking_off.py"
                "::TestRenewal::test_its_time_counts_from_before_the_lease_was_asked_for"
            ),
        ),
    ),
    Mutant(
        "a-moved-lease-is-not-used",
        "A client's lease, moved to DynamoDB, is a slot that was taken and never used.",
        "broker/wiring/contents.py",
        """            await self._pool.clients.use_slot(client, lease_key)
""",
        "",
        (
            (
                "tests/integration/move/test_move.py"
                "::test_a_clients_leases_go_along_and_count_for_no_budget"
            ),
        ),
    ),
    Mutant(
        "a-move-opens-the-target-first",
        "Both engines are open for a moment, or for as long as the command is dead.",
        "entrypoints/move/service.py",
        """        for part in left:
            await part.change_source(Phase.MOVED, _id(part.here), _now())
            self._options.report(f"{part.name}: closed on {part.source.engine}")
        for part in self._parts:
            await part.change_target(Phase.OPEN, _id(part.there), _now())
            self._options.report(f"{part.name}: open on {part.target.engine}")
""",
        """        for part in self._parts:
            await part.change_target(Phase.OPEN, _id(part.there), _now())
            self._options.report(f"{part.name}: open on {part.target.engine}")
        for part in left:
            await part.change_source(Phase.MOVED, _id(part.here), _now())
            self._options.report(f"{part.name}: closed on {part.source.engine}")
""",
        (
            (
                "tests/integration/move/test_move.py"
                "::test_a_move_that_broke_off_anywhere_goes_on_or_back[sqlite-postgresql]"
            ),
        ),
    ),
    Mutant(
        "a-moved-store-is-written-to",
        "A process that read that a store is open uses it for ever.",
        "kit/store_states.py",
        "if now >= self._ends_at or time.time() >= self._wall_ends_at:",
        "if self._ends_at == 0.0:",
        ("tests/unit/kit/test_store_states.py",),
    ),
    Mutant(
        "events-with-long-texts",
        "Ours until 0.2.0: changes of a long text in a loop write 60 GB of events a day.",
        "kit/changes/transitions.py",
        "or len(str(form)) <= LONGEST_RECORDED:",
        "or form == form:",
        ("tests/unit/kit/changes/test_transitions.py",),
    ),
    Mutant(
        "any-number-of-keys",
        "Ours until 0.2.0: 1 MB of unknown JSON keys stops the event loop for 0.8 s.",
        "kit/http/bodies.py",
        "MOST_KEYS = 200",
        "MOST_KEYS = 10**9",
        ("tests/unit/kit/http/test_bodies.py",),
    ),
    Mutant(
        "passed-on-requests-fill-a-turn",
        "Ours until 0.3.0: the steps of 1,980 followers took the claims' event loop for 100 ms.",
        "entrypoints/server/bulkhead/turns.py",
        """        if self._taken < self._steps:
            self._take()
            return
""",
        """        if self._taken < self._steps or self._waiting is not None:
            self._take()
            return
""",
        ("tests/unit/entrypoints/server/test_turns.py",),
    ),
    Mutant(
        "the-last-to-come-is-the-first",
        "Unfair turns: while new requests come, the first ones wait for ever.",
        "entrypoints/server/bulkhead/turns.py",
        "turn = self._waiting.popleft()",
        "turn = self._waiting.pop()",
        ("tests/unit/entrypoints/server/test_turns.py",),
    ),
)
