"""One track's leases, from its events."""

from typing import Any

from sandyard.console.screens.labs import leases_in


def event(kind: str, subject: str, at: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "subject": subject, "at": at, "data": data}


def test_each_lease_has_its_end_and_what_ended_it() -> None:
    def leased(subject: str, at: str) -> dict[str, Any]:
        about = {"name": f"lab-{subject}", "ends_at": 100, "allocated_to_track": "ann"}
        return event("lease.created", subject, at, **about)

    ended = event("lease.ended", "b", "12:05", status="pending_deletion")
    replaced = event("lease.replaced", "a", "12:02", replaced_by="b")
    newest_first = [
        event("lease.extended", "c", "12:08", ends_at=160),
        leased("c", "12:07"),
        event("sandbox.deleted", "b", "12:06"),
        ended,
        leased("b", "12:02"),
        replaced,
        leased("a", "12:00"),
    ]
    found = leases_in(newest_first, "ann")
    assert [(each["name"], each["began_at"], each["end"]) for each in found] == [
        ("lab-c", "12:07", None),
        ("lab-b", "12:02", ended),
        ("lab-a", "12:00", replaced),
    ]
    assert found[0]["expires_at"] == 160
    assert leases_in(newest_first, "bob") == []
