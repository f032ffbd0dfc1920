"""Bugs of runs and previews that simulation and the search of interleavings must catch."""

from tests.mutants.model import Mutant

_RUNS = "tests/interleavings/test_runs.py"
_RUN = "tests/simulation/test_platform.py::test_every_run_is_recorded_as_it_was"
_SILENCE = "tests/simulation/test_silence.py::test_what_has_ended_is_billed_to_its_end"
_PREVIEWS = "tests/interleavings/test_previews.py"

SIMULATED = (
    Mutant(
        "a-start-is-taken-for-lost",
        "Ours until 0.3.0: a start that is recorded just after its node was asked ends as lost.",
        "platform/sandboxes/runs/lost_model.py",
        "    if (sandbox.status, sandbox.attempt) != (asked.status, asked.attempt):\n"
        "        return None\n",
        "",
        (_RUNS,),
    ),
    Mutant(
        "an-ended-machine-is-seen",
        "Ours until 0.3.0: seen at the end of the job, a machine that has ended is billed on.",
        "platform/sandboxes/runs/jobs.py",
        "await self._store.note_seen(seen, at=asked_at)",
        "await self._store.note_seen(seen, at=self._node.now())",
        (_SILENCE,),
    ),
    Mutant(
        "an-ended-machine-counts-on",
        "Ours until 0.3.0: a machine that has ended costs on while its files wait for the store.",
        "platform/sandboxes/runs/jobs.py",
        "            await self._recorder.cap_ended(sandbox, run, actor=actor)\n",
        "",
        (_SILENCE,),
    ),
    Mutant(
        "orphans-run-on",
        "What runs without a record is left running.",
        "platform/sandboxes/runs/jobs.py",
        "        ended = await self._runtime.stop(run.run_id)\n        report.orphans_ended += 1\n",
        "        return run\n",
        (_RUN,),
    ),
    Mutant(
        "an-attempt-is-used-again",
        "The next start has the number of the attempt before.",
        "platform/sandboxes/model.py",
        "            attempt=self.sandbox.attempt + 1,\n",
        "            attempt=max(1, self.sandbox.attempt),\n",
        (_RUNS,),
    ),
    Mutant(
        "an-end-without-its-usage",
        "The end is recorded, and the usage of its run stays open.",
        "platform/sandboxes/runs/model.py",
        "        return close_usage(usage, ended_at=end.ended_at, cause=accounting.cause)\n",
        "        return None\n",
        (_RUNS,),
    ),
    Mutant(
        "an-end-for-no-reason",
        "The owner is not told why a run has ended.",
        "platform/sandboxes/runs/model.py",
        "    accounting = accounting.because(end.reason)\n    ended = replace(\n",
        "    ended = replace(\n",
        (_RUNS,),
    ),
    Mutant(
        "a-stopped-attempt-makes-a-second-preview",
        "An attempt is over for others while its caller still makes its sandbox.",
        "previews/service.py",
        "        is_over = attempt.is_over(self._now())\n",
        "        is_over = True\n",
        (_PREVIEWS,),
    ),
    Mutant(
        "a-month-counts-a-run-twice",
        "A run that began and ended on one day is in the month's total from both of its lists.",
        "platform/billing/sql.py",
        "where(*closed, sa.not_(is_within_day))",
        "where(*closed)",
        (_RUN,),
    ),
)
