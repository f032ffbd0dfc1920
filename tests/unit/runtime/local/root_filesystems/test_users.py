"""Which users and groups a machine with a root of its own has."""

from pathlib import Path

from sandyard.runtime.local.root_filesystems.base_files import accounts


def test_those_of_packages_and_its_own(tmp_path: Path) -> None:
    for root in (None, tmp_path):
        users, groups = (text.splitlines() for text in accounts(root).values())
        assert users[0].startswith("root:")
        assert users[-1] == "user:x:1000:1000::/home/user:/bin/bash"
        assert groups[-1] == "user:x:1000:"
        assert len({each.split(":")[0] for each in users}) == len(users)


def test_nobody_who_uses_this_machine() -> None:
    *system, _ = accounts(None)["/etc/passwd"].splitlines()
    assert all((number := int(each.split(":")[2])) < 1000 or number == 65534 for each in system)


def test_those_of_a_root_file_system(tmp_path: Path) -> None:
    """But for one in the place of its user, and never by a link."""
    (tmp_path / "etc").mkdir()
    lines = (
        "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\ndb:x:70:70::/:/x\nodd\n"
    )
    (tmp_path / "etc" / "passwd").write_text(lines)
    (tmp_path / "etc" / "group").symlink_to("/etc/group")
    found = accounts(tmp_path)
    assert [each.split(":")[0] for each in found["/etc/passwd"].split()] == ["root", "db", "user"]
    assert found["/etc/group"].startswith("root:x:0:\ndaemon")
