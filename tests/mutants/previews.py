"""Bugs of Previews: one sandbox per project, and no end that nobody has seen."""

from tests.mutants.model import Mutant

_CONTRACT = "tests/contract/previews/test_previews.py"

PREVIEWS = (
    Mutant(
        "trouble-is-expired",
        "Seen in the seeds: the provider is away, the preview is told as expired, and made again.",
        "previews/status_model.py",
        """            return StatusReport(
                PreviewStatus.UNKNOWN, action, error.message, info, reported_at, error
            )""",
        """            return StatusReport(
                PreviewStatus.EXPIRED, action, error.message, info, reported_at, error
            )""",
        ("tests/unit/previews/test_status_model.py",),
    ),
    Mutant(
        "a-preview-is-made-twice",
        "The answer to a create is lost, the attempt is given up, the next call makes another.",
        "previews/service.py",
        "if not isinstance(error, errors.ProviderTroubleError) or error.made_nothing:",
        "if True:",
        (
            f"{_CONTRACT}::test_a_sandbox_whose_making_was_not_answered_is_found_again[sqlite-drop_after]",
        ),
    ),
    Mutant(
        "a-preview-of-an-attempt-that-is-over",
        "A create that took too long is recorded over the next attempt's sandbox, which leaks.",
        "previews/model.py",
        "    if not preview.has_attempt(info.attempt):\n        return None\n"
        "    after = replace(preview, info=info",
        "    after = replace(preview, info=info",
        ("tests/unit/previews/test_model.py",),
    ),
    Mutant(
        "an-unrecorded-preview-leaks",
        "A sandbox that came too late to be recorded is left running.",
        "previews/attempts.py",
        "        if current is None or not current.has_sandbox(sandbox.sandbox_id):\n",
        "        if False:\n",
        (_CONTRACT, "tests/contract/previews"),
    ),
    Mutant(
        "previews-over-their-quota",
        "Many starts at once each see room for one more.",
        "previews/model.py",
        '"preview.requested", cause, preconditions=(quota.running,)',
        '"preview.requested", cause',
        ("tests/unit/previews/test_model.py",),
    ),
    Mutant(
        "a-file-that-went-meanwhile-is-an-error",
        "Ours for a day: files that another server removed between two reads were a 500.",
        "previews/files.py",
        "sorted(touched.keys() & (deleted | written.keys()))",
        "sorted(there.keys() & (deleted | written.keys()))",
        ("tests/unit/previews/test_files.py",),
    ),
)
