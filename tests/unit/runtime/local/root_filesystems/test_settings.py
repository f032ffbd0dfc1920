"""What a machine finds set up inside."""

from pathlib import Path
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from sandyard.runtime.local.root_filesystems.settings import (
    CA_BUNDLE,
    PackageSources,
    aliases,
    ca_bundle,
    image_environment,
    machine_environment,
    machine_files,
)

ANY = "0.0.0.0"  # noqa: S104 - an address that is asked for


def with_programs(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def test_python_is_there_where_python3_is(tmp_path: Path) -> None:
    assert aliases(with_programs(tmp_path / "a", "usr/bin/python3", "usr/local/bin/pip3")) == {
        "python": "/usr/bin/python3",
        "pip": "/usr/local/bin/pip3",
    }
    assert aliases(with_programs(tmp_path / "b", "usr/bin/python3", "usr/local/bin/python")) == {}
    assert aliases(tmp_path) == {}


def test_certificates_are_added_to_those_of_the_system(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc/ssl/certs").mkdir(parents=True)
    (root / "etc/ssl/certs/ca-certificates.crt").write_text("system")
    bundle = ca_bundle(tmp_path / "ca", root, [b"ours"])
    assert bundle is not None
    assert bundle.read_text() == "system\nours"
    assert ca_bundle(tmp_path / "ca", root, [b"ours"]) == bundle
    assert ca_bundle(tmp_path / "ca", root, [b"another"]) != bundle
    assert ca_bundle(tmp_path / "ca", root, []) is None


def test_settings_name_the_operators_sources(tmp_path: Path) -> None:
    sources = PackageSources("https://pypi.corp.example/simple", "https://npm.corp.example/")
    files = machine_files(sources, root=tmp_path, has_ca=True)
    assert "index-url = https://pypi.corp.example/simple\n" in files["/etc/pip.conf"]
    assert f"cert = {CA_BUNDLE}\n" in files["/etc/pip.conf"]
    assert "registry=https://npm.corp.example/\n" in files["/etc/npmrc"]
    plain = machine_files(PackageSources(), root=tmp_path, has_ca=False)
    assert "index-url" not in plain["/etc/pip.conf"]
    assert "cafile" not in plain["/etc/npmrc"]


def test_an_index_without_tls_is_trusted_because_the_operator_named_it(tmp_path: Path) -> None:
    for url, host in (
        ("http://pypi.corp.example/simple", "pypi.corp.example"),
        ("http://user:secret@pypi.corp.example:8081/simple", "pypi.corp.example:8081"),
    ):
        files = machine_files(PackageSources(url), root=tmp_path, has_ca=False)
        assert f"trusted-host = {host}\n" in files["/etc/pip.conf"]
    secure = PackageSources("https://pypi.corp.example/simple")
    assert "trusted-host" not in machine_files(secure, root=tmp_path, has_ca=False)["/etc/pip.conf"]


def test_the_machine_itself_is_reached_without_the_proxy() -> None:
    variables = machine_environment(has_ca=False)
    direct = variables["no_proxy"].split(",")
    assert variables["NO_PROXY"] == variables["no_proxy"]
    assert {"localhost", "127.0.0.1", "127.0.0.0/8", ANY, "::1", "sandbox"} == set(direct)
    for host in ("localhost", ANY, "sandbox", "sandbox:8000"):
        assert proxy_bypass_environment(host, {"no": variables["no_proxy"]})
    assert not proxy_bypass_environment("example.org", {"no": variables["no_proxy"]})


def test_npm_trusts_what_the_system_trusts(tmp_path: Path) -> None:
    with_programs(tmp_path, "etc/ssl/certs/ca-certificates.crt")
    for has_ca, bundle in ((False, "/etc/ssl/certs/ca-certificates.crt"), (True, CA_BUNDLE)):
        files = machine_files(PackageSources(), root=tmp_path, has_ca=has_ca)
        assert f"cafile={bundle}\n" in files["/etc/npmrc"]


def test_a_mirror_is_named_for_the_release_of_the_root(tmp_path: Path) -> None:
    with_programs(tmp_path, "usr/share/keyrings/debian-archive-keyring.gpg", "usr/lib/os-release")
    (tmp_path / "usr/lib/os-release").write_text('NAME="Debian"\nVERSION_CODENAME=trixie\n')
    sources = PackageSources(debian_mirror="http://mirror.corp.example/debian")
    listed = machine_files(sources, root=tmp_path, has_ca=False)["/etc/apt/sources.list"]
    assert listed.endswith(" http://mirror.corp.example/debian trixie main\n")


def test_an_image_keeps_its_own_programs_and_not_its_own_proxy() -> None:
    own = machine_environment(has_ca=False)
    variables = {"PATH": "/opt/bin:/usr/bin", "LANG": "de", "http_proxy": "http://evil"}
    given = image_environment(variables, own)
    assert given["PATH"].startswith("/workspace/.local/bin:/opt/bin:/usr/local/bin:")
    assert given["PATH"].count("/usr/bin") == 1
    assert given["http_proxy"] == own["http_proxy"]
    assert given["LANG"] == "de"
