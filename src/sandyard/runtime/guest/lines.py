"""Responses of the guest, as lines of JSON."""

import json
import sys
from typing import Any


def write_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
