"""Formats an event as a line, for people."""

from collections.abc import Mapping
from typing import Any

from sandyard.entrypoints.cli.showing import Column, field, local_iso

COLUMNS = (
    Column("time", lambda event: local_iso(event["at"])),
    field("kind", "kind"),
    field("subject", "subject"),
    field("by", "actor"),
    field("reason", "reason"),
    field("part", "part", is_wide=True),
    field("id", "event_id", is_wide=True),
)


def event_line(event: Mapping[str, Any]) -> str:
    words = [local_iso(event["at"]), event["kind"], event["subject"], "by", event["actor"]]
    if event["reason"]:
        words += ["because", event["reason"]]
    line = " ".join(str(word) for word in words)
    return "".join(char if char.isprintable() else "�" for char in line)
