"""A pytest plugin for whole runs: a few tests that failed on a busy machine are run once more.

Each gets a process of its own, after all others have ended. One that passes then is reported as
flaky, with how it failed before, and does not fail the run.
"""

import subprocess
import sys

import pytest
from _pytest.terminal import TerminalReporter

MOST = 5
"""More failures are not by chance."""
DETERMINISTIC = ("tests/unit/", "tests/simulation/", "tests/interleavings/", "tests/deploy/")
FLAKY = "flaky"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    failed = {
        each.nodeid: each for kind in ("error", "failed") for each in reporter.getreports(kind)
    }
    if len(failed) > MOST or not all(map(may_be_by_chance, failed.values())):
        return
    flaky = {name: report for name, report in failed.items() if passes_alone(name, reporter)}
    for kind in ("error", "failed"):
        left = [each for each in reporter.stats.pop(kind, []) if each.nodeid not in flaky]
        reporter.stats |= {kind: left} if left else {}
    reporter.stats[FLAKY] = list(flaky.values())
    if len(flaky) == len(failed):
        session.exitstatus = pytest.ExitCode.OK


def may_be_by_chance(report: object) -> bool:
    """Hypothesis repeats the example that failed; a file that can't be collected stays so."""
    return (
        isinstance(report, pytest.TestReport)
        and not report.nodeid.startswith(DETERMINISTIC)
        and "hypothesis" not in report.keywords
    )


def passes_alone(name: str, reporter: TerminalReporter) -> bool:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", name]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    reporter.write_line(
        f"\n{name} failed; alone it {'fails again' if again.returncode else 'passes'}"
    )
    if again.returncode:
        reporter.write_line(again.stdout + again.stderr)
    return again.returncode == 0


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    for report in terminalreporter.getreports(FLAKY):
        terminalreporter.write_sep("=", f"FLAKY: {report.nodeid}", yellow=True, bold=True)
        report.toterminal(terminalreporter._tw)
        terminalreporter.write_line(f"FLAKY {report.nodeid}: failed above, passed alone. Mend it.")
