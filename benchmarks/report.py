"""What a figure is, and the one table that shows them all."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

Say = Callable[[str], None]
"""Tells the person who waits what is being done."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; without a target it only stands beside another for comparison."""

    measured: str
    value: str
    target: str = "-"
    is_met: bool | None = None

    @classmethod
    def at_least(cls, measured: str, values: Sequence[float], least: float) -> "Figure":
        """The median of several rounds, with the lowest and the highest beside it."""
        value = median(values)
        shown = f"{value:.2f} ({min(values):.2f} to {max(values):.2f})"
        return cls(measured, shown, f"≥ {least:.2f}", value >= least)

    @classmethod
    def at_most(cls, measured: str, value: float, most: float) -> "Figure":
        return cls(measured, f"{value:.2f}", f"≤ {most:.2f}", value <= most)

    @classmethod
    def below(
        cls, measured: str, value: float, limit: float, unit: str, *, is_valid: bool = True
    ) -> "Figure":
        shown = f"{value:.2f} {unit}"
        return cls(measured, shown, f"< {limit:g} {unit}", is_valid and value < limit)

    @classmethod
    def not_measured(cls, measured: str, why: str) -> "Figure":
        return cls(measured, f"not measured: {why}")


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one benchmark and the number of rows they were taken with."""

    figures: Sequence[Figure]
    rows: str = ""
    load: float = 0.0
    """The machine's load average before it."""
    is_broken_off: bool = False


def progress() -> Say:
    """A line on stderr that replaces itself on a terminal and is a line of its own elsewhere."""
    is_terminal = sys.stderr.isatty()

    def say(text: str) -> None:
        line = f"\r\x1b[K{text}" if is_terminal else f"{text}\n"
        print(line, end="", file=sys.stderr, flush=True)

    return say


def show_figures(result: Measured, say: Say) -> None:
    """As lines, so that they are there even if the rest never comes."""
    for figure in result.figures:
        say(f"{figure.measured}: {figure.value} ({figure.target}) at load {result.load:.1f}\n")


def print_table(results: Sequence[Measured], *, load_before: float) -> None:
    """Print every figure; `load_before` tells how busy others kept the machine."""
    rows = "; ".join(result.rows for result in results if result.rows)
    table = Table(
        title=f"Sandyard on {_usable_cores()} cores, Python {platform.python_version()}, "
        f"load average {load_before:.1f} before\n"
        f"rows: {rows or 'none'}",
        title_justify="left",
    )
    table.add_column("measured", overflow="fold")
    table.add_column("value", justify="right")
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("load", justify="right", no_wrap=True)
    for result in results:
        load = f"{result.load:.1f}"
        for figure in result.figures:
            table.add_row(figure.measured, figure.value, figure.target, _MET[figure.is_met], load)
        table.add_section()
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(table)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_MET = {True: "yes", False: "no", None: "-"}
