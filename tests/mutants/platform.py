"""Bugs of the Platform: runs, usage and bills, access."""

from tests.mutants.model import Mutant

_RUNS = "tests/unit/platform/sandboxes/runs"
_USAGE = "tests/unit/platform/usage/test_model.py"
_BILLING = "tests/unit/platform/billing/test_model.py"
_SANDBOXES = "tests/integration/platform/test_sandboxes.py"

PLATFORM = (
    Mutant(
        "a-usage-row-stays-open",
        "The run has ended, and its usage goes on for ever.",
        "platform/sandboxes/runs/model.py",
        "        return close_usage(usage, ended_at=end.ended_at, cause=accounting.cause)\n",
        "        return None\n",
        (f"{_RUNS}/test_model.py",),
    ),
    Mutant(
        "an-older-attempt-ends-the-run",
        "A late report of the attempt before ends the run of now, which goes on unseen.",
        "platform/sandboxes/runs/model.py",
        "if not sandbox.is_active or sandbox.attempt != end.attempt:",
        "if not sandbox.is_active:",
        (f"{_RUNS}/test_model.py",),
    ),
    Mutant(
        "an-older-attempt-is-recorded-as-running",
        "A start whose answer came late is recorded over the one that followed it.",
        "platform/sandboxes/runs/model.py",
        "if (sandbox.status, sandbox.attempt) != (Status.STARTING, run.attempt):",
        "if sandbox.status is not Status.STARTING:",
        (f"{_RUNS}/test_model.py",),
    ),
    Mutant(
        "an-end-of-a-machine-that-was-not-asked",
        "Seen in peers: a machine that could not be asked is recorded as ended, and runs on.",
        "platform/sandboxes/runs/jobs.py",
        """            logger.warning("a sandbox could not be looked up", extra=extra)
            return False
""",
        """            logger.warning("a sandbox could not be looked up", extra=extra)
            return await self._recorder.record_lost(sandbox, actor=actor)
""",
        (
            f"{_SANDBOXES}::test_one_broken_record_does_not_stop_the_bookkeeping_of_the_others[sqlite]",
        ),
    ),
    Mutant(
        "one-broken-record-stops-bookkeeping",
        "Ours until 0.2.0: one record that can't be read, and no end on this node is recorded.",
        "platform/sandboxes/runs/jobs.py",
        "        except RuntimeUnavailableError as error:\n            extra",
        "        except ZeroDivisionError as error:\n            extra",
        (
            f"{_SANDBOXES}::test_one_broken_record_does_not_stop_the_bookkeeping_of_the_others[sqlite]",
        ),
    ),
    Mutant(
        "silence-is-an-end",
        "A node that is cut off is taken for dead, and its programs are started elsewhere too.",
        "platform/sandboxes/runs/lost_model.py",
        "if max(seen_at + silent_for, due_at) > accounting.cause.at:",
        "if seen_at + silent_for > accounting.cause.at:",
        (f"{_RUNS}/test_lost_model.py",),
    ),
    Mutant(
        "an-unknown-start-is-a-failed-one",
        "After a lost answer the start is recorded as failed, a second one begins, and both run.",
        "platform/sandboxes/runs/starts.py",
        "        except UnavailableError:\n"
        "            raise  # unknown whether it runs: the reconciler finds out\n",
        "",
        ("tests/integration/platform/test_reconciled_starts.py",),
    ),
    Mutant(
        "a-bill-is-rounded-twice",
        "Ours until 0.2.0: the rate is rounded and then the cost; small snapshots are free.",
        "platform/usage/model.py",
        '"exact_rate": None if shown == rate else rate',
        '"exact_rate": None',
        (_USAGE,),
    ),
    Mutant(
        "days-do-not-add-up",
        "Each day is rounded on its own: the bills of a usage are not its cost.",
        "platform/usage/model.py",
        "yield DayShare(day, consumed - before)",
        "yield DayShare(day, replace(consumed - before, amount=cost_of("
        "consumed.milliseconds - before.milliseconds, usage.rate)))",
        (_USAGE,),
    ),
    Mutant(
        "short-runs-are-free",
        "Ours until 0.2.0: a run between two seconds of the clock costs nothing.",
        "platform/usage/model.py",
        "return max(self.least_milliseconds, (until - self.start_time) // _MILLISECOND)",
        "return _SECOND_MS * (_whole_seconds(until) - _whole_seconds(self.start_time))",
        (_USAGE,),
    ),
    Mutant(
        "a-day-is-billed-twice",
        "The job that bills runs again, and makes the same bills again.",
        "platform/billing/model.py",
        "if day not in billed and share.amount",
        "if share.amount",
        (_BILLING,),
    ),
    Mutant(
        "a-bill-of-a-usage-that-changed",
        "A bill is made from a usage that another process has closed meanwhile.",
        "platform/billing/model.py",
        "            preconditions=(unchanged,),\n",
        "",
        ("tests/contract/platform/billing", _BILLING),
    ),
    Mutant(
        "another-accounts-sandbox",
        "A sandbox is found by its id, whoever asks.",
        "platform/sandboxes/sql/store.py",
        "is_theirs = found is not None and account_id in (None, found.owner_account_id)",
        "is_theirs = found is not None",
        (
            (
                "tests/contract/platform/access/test_isolation.py"
                "::test_anothers_things_are_not_found_by_login_or_key[sqlite-user]"
            ),
        ),
    ),
    Mutant(
        "another-accounts-project",
        "Listings and reads of projects, templates, keys and variables are everybody's.",
        "platform/entities/sql.py",
        'return (owner == account_id, entities.column("deleted_at").is_(None))',
        'return (owner != "", entities.column("deleted_at").is_(None))',
        (
            (
                "tests/contract/platform/access/test_isolation.py"
                "::test_anothers_things_are_not_found_by_login_or_key[sqlite-user]"
            ),
        ),
    ),
    Mutant(
        "a-deactivated-key-is-accepted",
        "A key is looked up, and not whether it is still active.",
        "platform/access/credentials.py",
        "return self.is_active and self.account.is_active and not is_over",
        "return self.account.is_active and not is_over",
        ("tests/unit/platform/access/test_credentials.py",),
    ),
    Mutant(
        "paused-for-ever",
        "Ours until 0.2.0: a create that was broken off leaves a sandbox that no job recycles.",
        "platform/sandboxes/runs/model.py",
        "return sandbox.created_at + longest + LONGEST_START <= now",
        "return False",
        (f"{_RUNS}/test_model.py",),
    ),
    Mutant(
        "an-inactive-owner-starts",
        "Ours until 0.2.0: visitors wake the sandboxes of a deactivated account.",
        "platform/sandboxes/model.py",
        "    if not project.is_owner_active:\n",
        "    if False:\n",
        ("tests/integration/attacks/test_lasting_access.py",),
    ),
)
