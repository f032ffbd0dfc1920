"""Bugs of E2B's API."""

from tests.mutants.model import Mutant

_OUTAGES = "tests/integration/e2b_api/test_outages.py"

E2B_API = (
    Mutant(
        "an-outage-is-an-empty-list",
        "Ours until 0.2.0: the engine is away, and an agent hears that it has no sandboxes.",
        "e2b_api/sandboxes/service.py",
        "        except TemplateNotFoundError:\n            return None\n"
        "        return SandboxFilter",
        "        except Exception:\n            return None\n        return SandboxFilter",
        (f"{_OUTAGES}::test_a_list_by_template_without_its_engine_is_not_empty",),
    ),
    Mutant(
        "an-outage-at-wake-is-gone",
        "Ours until 0.2.0: a sandbox that can't be woken now is told as gone for good.",
        "e2b_api/sandboxes/entrance.py",
        "except (SandboxUnknownError, SandboxRecycledError) as error:",
        "except Exception as error:",
        (f"{_OUTAGES}::test_an_outage_or_a_quota_at_wake_is_not_a_missing_sandbox",),
    ),
    Mutant(
        "a-repeated-create-makes-another",
        "Ours until 0.3.0: a repeat was answered with a sandbox that was gone, or made another.",
        "kit/idempotency.py",
        "        return Step.ANSWER\n",
        "        return Step.FORGET\n",
        (f"{_OUTAGES}::test_a_repeated_create_makes_nothing_once_its_sandbox_is_gone",),
    ),
    Mutant(
        "a-repeated-create-does-not-wait",
        "Ours until 0.2.0: 19 of 30 first calls after a repeated create were 502.",
        "kit/http/idempotency.py",
        "                await anext(pauses)\n",
        "                raise idempotency.FirstCallRunsError(retry_after=1)\n",
        (f"{_OUTAGES}::test_a_repeated_create_at_another_replica_waits_too",),
    ),
    Mutant(
        "a-cancelled-create-leaks",
        "Ours until 0.2.0: the caller has gone, and its sandbox runs and is billed.",
        "platform/sandboxes/service.py",
        "            await asyncio.shield(self._recycle_created(creating, by))\n"
        "            raise\n",
        "            raise\n",
        (f"{_OUTAGES}::test_a_create_whose_caller_has_gone_leaves_nothing_behind",),
    ),
    Mutant(
        "an-image-is-somebodys-build",
        "Ours until 0.2.0: `from_image()` started with a build that anybody had published.",
        "e2b_api/templates/finder.py",
        "return next((each for each in found if each.is_official and not each.archives), None)",
        "return next(iter(found), None)",
        ("tests/unit/e2b_api/templates/test_finder.py",),
    ),
    Mutant(
        "a-token-outlives-its-key",
        "Ours until 0.2.0: access tokens and signed links of a revoked key opened the sandbox.",
        "e2b_api/sandboxes/entrance.py",
        "may_enter = is_own and key.holds_at(now) and key.scope.includes(Scope.RUN)",
        "may_enter = is_own and key.scope.includes(Scope.RUN)",
        ("tests/unit/e2b_api/sandboxes/test_entrance.py",),
    ),
    Mutant(
        "a-token-never-ends",
        "Ours until 0.2.0: an access token was valid for ever.",
        "e2b_api/tokens.py",
        "    return int(at // _WEEK_SEC)\n",
        "    return 0\n",
        ("tests/unit/e2b_api/test_tokens.py",),
    ),
    Mutant(
        "started-after-leaves-out-its-instant",
        "Ours until 0.2.0: a sandbox that started at the very instant is not listed.",
        "e2b_api/sandboxes/service.py",
        "began_at >= self.started_after",
        "began_at > self.started_after",
        ("tests/unit/e2b_api/sandboxes/test_service.py",),
    ),
)
