"""What this machine lacks: nothing, where the tests run."""

from sandyard.runtime.local.server.requirements import missing_for_previews, missing_for_sandboxes


def test_nothing_is_missing_where_all_is_installed() -> None:
    assert missing_for_sandboxes("bubblewrap") == []
    assert missing_for_previews("bubblewrap") == []
    assert missing_for_sandboxes("none") == []
