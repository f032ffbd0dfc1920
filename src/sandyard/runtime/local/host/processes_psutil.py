"""Processes by psutil, for systems without /proc."""

from collections.abc import Iterable

import psutil


def identity(pid: int) -> str | None:
    """As `processes.identity`."""
    try:
        process = psutil.Process(pid)
        is_gone = process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return None if is_gone else f"{process.create_time():.2f}"


def descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    used = 0.0
    for pid in pids:
        try:
            used += sum(psutil.Process(pid).cpu_times()[:4])
        except psutil.Error:
            continue
    return used


def resident_bytes(pids: Iterable[int]) -> int:
    held = 0
    for pid in pids:
        try:
            held += psutil.Process(pid).memory_info().rss
        except psutil.Error:
            continue
    return held
