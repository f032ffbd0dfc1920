"""Bugs of Telemetry: readings exactly once, devices, keys."""

from tests.mutants.model import Mutant

_CONTRACT = "tests/contract/telemetry"

TELEMETRY = (
    Mutant(
        "a-reading-without-its-marker",
        "The marker is written later: sent again after its reading is gone, it is stored again.",
        "telemetry/stores/sql_intake.py",
        "    if _insert_markers.insert(connection, markers) != len(markers):\n        raise",
        "    if _find_markers.rows(connection, [each[0] for each in markers]):\n        raise",
        (f"{_CONTRACT}/test_intake.py", f"{_CONTRACT}/test_readings.py"),
    ),
    Mutant(
        "a-reading-without-its-marker-on-dynamodb",
        "The reading is written alone, not together with its marker.",
        "telemetry/stores/dynamodb.py",
        "                self._tables.markers.put_action("
        'marker, condition="attribute_not_exists(batch_id)"),\n',
        "",
        (f"{_CONTRACT}/test_intake.py", f"{_CONTRACT}/test_readings.py"),
    ),
    Mutant(
        "other-content-is-accepted",
        "Another reading under the same batch id is acknowledged as a duplicate, and lost.",
        "telemetry/model.py",
        "if existing.content_hash != reading.content_hash:",
        "if False:",
        ("tests/unit/telemetry/test_model.py",),
    ),
    Mutant(
        "anothers-batch-id-is-a-duplicate",
        "A batch id of another device counts as one's own.",
        "telemetry/model.py",
        '    *("hardware_id", "timestamp_ms",',
        '    *("timestamp_ms",',
        ("tests/unit/telemetry/test_model.py",),
    ),
    Mutant(
        "last-seen-moves-back",
        "A replica whose clock is behind makes a device look silent.",
        "telemetry/stores/sql_intake.py",
        '        devices.c.last_seen_at < sa.bindparam("seen"),\n',
        "",
        (f"{_CONTRACT}/test_readings.py::TestKeep::test_last_seen_never_moves_back[sqlite]",),
    ),
    Mutant(
        "a-marker-goes-before-its-reading",
        "A reading that is sent again after 30 days is stored a second time.",
        "telemetry/model.py",
        "return max(now_ms + _MARKER_MS, timestamp_ms + self.duration_ms + 1000)",
        "return now_ms + _MARKER_MS",
        ("tests/unit/telemetry/test_model_decisions.py",),
    ),
    Mutant(
        "a-revoked-key-is-cached",
        "A read that began before the revocation is cached after it.",
        "telemetry/keys.py",
        "if revocations == self._revocations:",
        "if True:",
        (
            (
                f"{_CONTRACT}/test_api_keys.py"
                "::TestRevoke::test_a_read_that_began_before_a_revocation_is_not_cached[sqlite]"
            ),
        ),
    ),
    Mutant(
        "a-key-by-a-lagging-index",
        "A revoked key is valid for as long as the index shows it as it was.",
        "telemetry/stores/dynamodb.py",
        '            item = await self._keys.get({"key_id": candidate["key_id"]})\n',
        "            item = candidate\n",
        ("tests/faults/telemetry",),
    ),
)
