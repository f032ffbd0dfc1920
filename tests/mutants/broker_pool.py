"""Bugs of the pool: claims, leases, sync, deletions and holds."""

from tests.mutants.model import Mutant

_UNIT = "tests/unit/broker/pool"
_CONTRACT = "tests/contract/broker/pool"
_INTEGRATION = "tests/integration/broker/pool"

_EXTENSION = "tests/contract/broker/pool/test_extension.py"

POOL = (
    Mutant(
        "sync-overwrites-allocation",
        "Seen in peers: sync decides from what it has read, and overwrites a lease made since.",
        "broker/pool/stores/sql_rows.py",
        "(_column.sandbox_id == before.sandbox_id, _column.sequence == before.sequence)",
        "(_column.sandbox_id == before.sandbox_id,)",
        (
            (
                f"{_INTEGRATION}/test_sync.py"
                "::TestSync::test_what_is_leased_while_sync_decides_stays_leased[postgresql]"
            ),
        ),
    ),
    Mutant(
        "sync-overwrites-allocation-on-dynamodb",
        "The same on DynamoDB: writes without the conditions that they were decided from.",
        "kit/dynamo/items.py",
        'action["ConditionExpression"] = condition',
        'action["ConditionExpression"] = f"{condition} OR attribute_not_exists(any_name)"',
        (
            (
                f"{_INTEGRATION}/test_sync.py"
                "::TestSync::test_what_is_leased_while_sync_decides_stays_leased[dynamodb]"
            ),
        ),
    ),
    Mutant(
        "sync-takes-a-leased-sandbox",
        "Seen in peers: a sandbox that the list lacks goes stale although a track works in it.",
        "broker/pool/provider_model.py",
        "if row.status not in model.FREE:",
        "if row.status not in (*model.FREE, model.Status.ALLOCATED):",
        (f"{_UNIT}/test_provider_model.py",),
    ),
    Mutant(
        "half-a-list-empties-the-pool",
        "Seen in peers: a provider's broken list makes most of the pool stale.",
        "broker/pool/provider_model.py",
        "return missing > 5 and missing * 2 > of",
        "return False",
        (f"{_UNIT}/test_provider_model.py",),
    ),
    Mutant(
        "a-list-that-broke-off-is-a-list",
        "Seen in peers: the pages that could be read are taken for all there are.",
        "broker/provider/client.py",
        '            page = await self._get("/api/sandbox", params)\n',
        """            try:
                page = await self._get("/api/sandbox", params)
            except ProviderUnavailableError:
                return list(found.values())
""",
        (
            (
                f"{_INTEGRATION}/test_sync.py::TestSync"
                "::test_a_list_that_cannot_be_read_to_its_end_changes_nothing"
                "[postgresql-breaks off after page 1]"
            ),
        ),
    ),
    Mutant(
        "idempotency-by-a-lagging-index",
        "Seen in peers: a retry is recognized by what an index shows, not by the write itself.",
        "broker/pool/stores/dynamo_claims.py",
        '_NO_LEASE = "attribute_not_exists(PK)"',
        '_NO_LEASE = "(attribute_not_exists(PK) OR attribute_exists(PK))"',
        (
            (
                "tests/faults/broker/test_contention.py::TestLaggingIndex"
                "::test_a_quick_retry_gets_the_same_sandbox_from_any_replica"
            ),
        ),
    ),
    Mutant(
        "a-lost-answer-is-another-claim",
        "A claim that was written, and whose answer was lost, is not recognized as its own.",
        "broker/pool/stores/dynamo_claims.py",
        'if held is not None and held.get("write_id") == write_id:',
        "if False:",
        (
            (
                "tests/faults/broker/test_faults.py"
                "::TestDroppedAnswers::test_a_claim_finds_its_own_write"
            ),
        ),
    ),
    Mutant(
        "a-lost-answer-is-a-refusal",
        "Ours until 0.3.0: a release whose answer was lost is 404 once cleanup has deleted it.",
        "kit/dynamo/event_items.py",
        'any(each.item and each.item.get("event_id") in event_ids for each in refused.reasons)',
        "False",
        (
            (
                "tests/faults/broker/test_faults.py::TestDroppedAnswers::"
                "test_an_operator_sees_a_release_done_though_the_sandbox_is_deleted_since"
            ),
        ),
    ),
    Mutant(
        "contention-is-409",
        "Seen in peers: a claim that lost a race to another reports an empty pool (DynamoDB).",
        "broker/pool/stores/dynamo_claims.py",
        "while (candidate := await prefetch.take()) is not None:",
        "if (candidate := await prefetch.take()) is not None:",
        (
            (
                "tests/faults/broker/test_contention.py::TestLaggingIndex"
                "::test_as_many_callers_as_free_sandboxes_get_one_each"
            ),
        ),
    ),
    Mutant(
        "locked-rows-are-409",
        "Rows that another transaction has locked, and may not lease, are taken for none.",
        "broker/pool/stores/sql_claim_batches.py",
        "            yield Source(prefix, wait_for_locked=True)\n",
        "            yield Source(prefix)\n",
        (
            (
                f"{_INTEGRATION}/test_races.py"
                "::test_a_claim_waits_for_the_only_free_row_while_another_transaction_locks_it"
            ),
        ),
    ),
    Mutant(
        "two-owners-by-one-row",
        "The batch of claims does not check that its rows are as they were read.",
        "broker/pool/stores/sql_claim_statements.py",
        "WHERE sandbox_id = NEW.sandbox_id AND sequence = NEW.sequence - 1",
        "WHERE sandbox_id = NEW.sandbox_id",
        (
            (
                f"{_INTEGRATION}/test_races.py"
                "::test_a_sync_that_runs_beside_claims_takes_nothing_from_anyone[sqlite]"
            ),
        ),
    ),
    Mutant(
        "an-expired-lease-leaks",
        "The sandbox of a key's expired lease is not ended as the key gets another one.",
        "broker/pool/stores/dynamo_claims.py",
        "        if ended is not None:\n            actions.append",
        "        if ended is None:\n            actions.append",
        (
            (
                f"{_CONTRACT}/test_store.py"
                "::TestClaim::test_a_lease_ends_at_its_exact_instant[dynamodb]"
            ),
        ),
    ),
    Mutant(
        "a-lease-lives-at-its-end",
        "Windows are half-open: at its very end a lease is over.",
        "broker/pool/model.py",
        "return now < self.expires_at",
        "return now <= self.expires_at",
        (f"{_UNIT}/test_model.py",),
    ),
    Mutant(
        "expiry-by-another-clock",
        "Seen in peers: who decides that a lease is over has another clock than who gave it.",
        "broker/pool/jobs.py",
        "ended_by = int(self.clock.now()) - self.grace_sec",
        'ended_by = int(__import__("time").time()) - self.grace_sec',
        (
            (
                f"{_INTEGRATION}/test_expiry.py"
                "::TestExpiry::test_the_grace_period_ends_at_its_very_second[postgresql]"
            ),
        ),
    ),
    Mutant(
        "expiry-forgets-an-extension",
        "A lease that its track has extended ends when it first would have.",
        "broker/pool/model.py",
        "        if self.ends_at is not None:\n            return self.ends_at\n",
        "",
        (f"{_UNIT}/test_extensions.py", f"{_UNIT}/test_model.py"),
    ),
    Mutant(
        "an-extension-is-refused-by-a-late-clock",
        "Ours until 0.3.0: a row that came late was compared with a time from after it.",
        "broker/queue/assignment.py",
        "            cause = Cause.by(by, self._clock)  "
        "# read first: a row that is read later is as new\n"
        "            row = await self.find(sandbox_id)\n",
        "            row = await self.find(sandbox_id)\n"
        "            cause = Cause.by(by, self._clock)\n",
        (f"{_EXTENSION}::test_a_row_that_comes_late_is_not_taken_for_that_of_now",),
    ),
    Mutant(
        "a-retry-extends-twice",
        "A repeated extension, whose first answer was lost, adds its minutes again.",
        "broker/pool/lease_model.py",
        "if extension.key in keys:",
        "if False:",
        (f"{_UNIT}/test_extensions.py",),
    ),
    Mutant(
        "a-late-list-brings-a-deleted-one-back",
        "A list from before the deletion: sync adds the sandbox again, and a track gets it.",
        "broker/stores/dynamo_writes.py",
        """                dynamo_items.gone_key(sandbox.sandbox_id),
                condition=_NO_TOMBSTONE,
                values={"now": sandbox.created_at},""",
        """                dynamo_items.gone_key(sandbox.sandbox_id),
                condition=f"attribute_exists(PK) OR {_NO_TOMBSTONE}",
                values={"now": sandbox.created_at},""",
        (
            (
                f"{_CONTRACT}/test_store.py::TestDeletion"
                "::test_the_tombstoned_are_never_added_again_until_forgotten[dynamodb]"
            ),
        ),
    ),
    Mutant(
        "a-tombstone-is-not-renewed",
        "A sandbox that the provider lists for longer than a week after its deletion comes back.",
        "broker/pool/sync.py",
        "await store.renew_tombstones(list(tombstoned), kept_until=model.tombstone_end(now))",
        "",
        (
            (
                f"{_INTEGRATION}/test_tombstones.py::TestTombstones"
                "::test_a_deleted_one_that_is_still_listed_never_comes_back"
            ),
        ),
    ),
    Mutant(
        "a-hold-never-ends",
        "Ours until 0.2.0: a hold whose time was over was reported, and the sandbox stayed held.",
        "broker/pool/lease_model.py",
        "return followed_by(overdue, decide_action(overdue.result, action, "
        "cause.because(HOLD_ENDED)))",
        "return overdue",
        (f"{_UNIT}/test_lease_model.py",),
    ),
    Mutant(
        "replace-leaks",
        "Ours until 0.2.0: a mark of the replaced sandbox left the one that replaced it leased.",
        "broker/queue/assignment.py",
        "while row.replaced_by is not None:",
        "while False:",
        (
            (
                f"{_CONTRACT}/test_holds.py"
                "::test_a_mark_follows_to_the_sandbox_that_replaced_it[sqlite]"
            ),
        ),
    ),
    Mutant(
        "replace-lengthens-the-lease",
        "The limits of a lease begin again with each sandbox that replaces another.",
        "broker/pool/lease_model.py",
        "allocated_at=old.allocated_at,",
        "allocated_at=seconds_of(cause),",
        (f"{_CONTRACT}/test_holds.py::test_replacing_gives_no_longer_lease[sqlite]",),
    ),
    Mutant(
        "an-open-circuit-counts",
        "Deletions that were never tried, because the circuit was open, become `deletion_failed`.",
        "broker/pool/jobs.py",
        "        except CircuitOpenError:\n            report.postponed += 1\n",
        "        except CircuitOpenError as error:\n"
        "            await self._record_failure(sandbox, error, report)\n",
        (
            (
                f"{_INTEGRATION}/test_cleanup.py"
                "::TestCleanup::test_an_open_circuit_counts_no_attempt_and_asks_nobody[postgresql]"
            ),
        ),
    ),
    Mutant(
        "deletion-without-backoff",
        "A failed deletion is tried again at once, until its attempts are used up.",
        "broker/pool/provider_model.py",
        "next_attempt_at=now + wait",
        "next_attempt_at=now",
        (f"{_UNIT}/test_deletions.py",),
    ),
    Mutant(
        "a-used-sandbox-is-restored",
        "A sandbox that one track has had is leased to the next.",
        "broker/pool/action_model.py",
        "case Action.RESTORE if row.allocated_at:",
        "case Action.RESTORE if False:",
        (f"{_UNIT}/test_model.py", f"{_UNIT}/test_action_model.py"),
    ),
    Mutant(
        "replacements-without-a-limit",
        "Ours until 0.2.0: `replace` in a loop empties the pool with one lease.",
        "broker/pool/lease_model.py",
        "if wanted.is_counted and old.replacements >= most:",
        "if wanted.is_counted and old.replacements > most:",
        (f"{_UNIT}/test_lease_model.py",),
    ),
    Mutant(
        "a-lease-ends-for-no-reason",
        "A lease whose time is over ends, and its track and its operator are not told why.",
        "broker/pool/model.py",
        "return end_lease(row, cause.because(EXPIRED))",
        "return end_lease(row, cause)",
        ("tests/interleavings/test_pool.py",),
    ),
    Mutant(
        "a-lease-that-was-replaced-at-once-is-a-second",
        "Ours until 0.3.0: `verify` took leases for overlapping that clocks told in another order.",
        "broker/log_rules.py",
        "if not (self._may_precede(one, other) or self._may_precede(other, one)):",
        "if not self._may_precede(one, other):",
        ("tests/unit/broker/test_log_rules.py",),
    ),
)
