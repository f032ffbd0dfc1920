"""How the settings of networks and packages reach the machines."""

from pathlib import Path
from typing import Any

from sandyard.platform.wiring.local_runtime import local_options
from sandyard.platform.wiring.runtimes import program_timeouts
from sandyard.runtime.local.root_filesystems.settings import PackageSources
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.settings import SandboxSettings, load_settings


def settings(**changes: Any) -> SandboxSettings:
    return load_settings().sandboxes.model_copy(update=changes)


def test_an_operators_own_index_needs_no_entry_in_the_list() -> None:
    policy = local_options(
        settings(
            sandbox_package_hosts="pypi.org, *.example.org",
            sandbox_pip_index_url="https://pypi.corp.example/simple",
            sandbox_npm_registry="http://npm.corp.example:4873/",
        )
    )
    assert policy.allowed_hosts == (
        *("pypi.org", "*.example.org"),
        *("pypi.corp.example:443", "npm.corp.example:4873"),
    )
    assert policy.packages == PackageSources(
        "https://pypi.corp.example/simple", "http://npm.corp.example:4873/"
    )


def test_networks_of_sandboxes_are_open_to_clones_too_and_not_the_other_way() -> None:
    policy = local_options(
        settings(sandbox_egress_networks="10.1.0.0/16,10.2.0.0/16", sandbox_git_networks="10.3.0.1")
    )
    assert policy.egress_networks == ("10.1.0.0/16", "10.2.0.0/16")
    assert policy.allowed_networks == ("10.3.0.1", "10.1.0.0/16", "10.2.0.0/16")


def test_all_certificates_are_trusted() -> None:
    policy = local_options(settings(sandbox_ca_file="/a.pem", sandbox_git_ca_file="/b.pem"))
    assert policy.ca_files == (Path("/a.pem"), Path("/b.pem"))
    assert local_options(settings()).ca_files == ()


def test_mirror_root_and_time_for_clones_are_the_operators() -> None:
    chosen = settings(
        sandbox_debian_mirror="http://debian.corp.example/debian",
        sandbox_git_timeout_sec=7,
        sandbox_root="none",
        sandbox_listen_timeout_sec=8,
    )
    options = local_options(chosen)
    assert options.packages.debian_mirror == "http://debian.corp.example/debian"
    assert (options.prepare_timeout_sec, options.root) == (7, "none")
    assert "debian.corp.example:80" in options.allowed_hosts
    assert program_timeouts(chosen) == ProgramTimeouts(7, 8)


def test_auto_leaves_the_choice_of_isolation_to_the_host() -> None:
    automatic, named = (settings(sandbox_isolation=name) for name in ("auto", "gvisor"))
    assert local_options(automatic).chooses_isolation
    assert not local_options(named).chooses_isolation
    assert local_options(named).isolation == "gvisor"
    assert local_options(settings(sandbox_gvisor_platform="kvm")).gvisor_platform == "kvm"
