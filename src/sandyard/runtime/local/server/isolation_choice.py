"""SANDBOX_ISOLATION=auto: the strongest isolation of this host, chosen once per data dir."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from sandyard.runtime.errors import IsolationMissingError, LimitsMissingError
from sandyard.runtime.local.server.enforcement import find_enforcement
from sandyard.runtime.local.server.isolation_check import check_isolation
from sandyard.runtime.local.server.options import LocalOptions

logger = logging.getLogger(__name__)
_RECORD = "isolation"


def with_isolation(options: LocalOptions, folder: Path, now: float) -> LocalOptions:
    """The options with the isolation that was chosen for machines in this folder; if none was, it
    is chosen now: gVisor if it is there and works, else bubblewrap."""
    if not options.chooses_isolation:
        return options
    record = folder / _RECORD
    with_gvisor = replace(options, isolation="gvisor", chooses_isolation=False)
    with_bubblewrap = replace(with_gvisor, isolation="bubblewrap")
    known = record.read_text().strip() if record.exists() else None
    if known is not None:
        return with_gvisor if known == "gvisor" else with_bubblewrap
    folder.mkdir(parents=True, exist_ok=True)
    try:
        check_isolation("gvisor", options)
        find_enforcement(with_gvisor, folder, now)
        chosen = with_gvisor
    except (IsolationMissingError, LimitsMissingError) as error:
        logger.info("sandboxes: bubblewrap is chosen. %s", error.message)
        chosen = with_bubblewrap
    draft = record.with_name(f".{_RECORD}.{os.getpid()}")
    draft.write_text(f"{chosen.isolation}\n")
    draft.replace(record)
    return chosen
