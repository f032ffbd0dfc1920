"""Which runsc is accepted, and what is said about the others."""

from pathlib import Path

import pytest

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.local.gvisor.runsc import check_gvisor, require_runsc


def install(folder: Path, script: str) -> Path:
    program = folder / "runsc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_a_missing_one_is_told_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationMissingError, match=r"missing.*-t bookworm-backports runsc"):
        require_runsc()


@pytest.mark.parametrize("version", ["0.0~20221219.0", "20240728.0"])
def test_an_older_one_is_refused_with_how_to_get_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    install(tmp_path, f"echo runsc version {version}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationMissingError, match=r"too old.*-t bookworm-backports runsc"):
        require_runsc()


@pytest.mark.parametrize("version", ["0.0~20240729.0", "release-20260105.0"])
def test_a_new_enough_one_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    program = install(tmp_path, f"echo runsc version {version}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert require_runsc() == str(program)


def test_a_platform_that_does_not_run_here_is_refused_with_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = '[ "$1" != --version ] || { echo runsc version 20240729; exit; }'
    only_systrap = 'case "$*" in *--platform=systrap*) ;; *) echo no /dev/kvm >&2; exit 1;; esac'
    install(tmp_path, f"{version}\n{only_systrap}")
    monkeypatch.setenv("PATH", str(tmp_path))
    check_gvisor("systrap")
    with pytest.raises(IsolationMissingError, match=r"on kvm: no /dev/kvm.*PLATFORM=systrap"):
        check_gvisor("kvm")
