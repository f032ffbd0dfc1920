"""The lock on a data dir, and the secrets that are generated for it."""

import stat
from pathlib import Path

from sandyard.bootstrap.registry import PARTS
from sandyard.entrypoints.server.data_dir import locked, secret_tokens, with_secrets
from sandyard.settings import load_settings


def test_every_secret_is_generated_once_per_data_dir(tmp_path: Path) -> None:
    first, again, other = (
        with_secrets(load_settings(), tmp_path / name) for name in ("first", "first", "other")
    )
    for secret in (secret for spec in PARTS for secret in spec.secrets):
        [token] = secret_tokens(first, secret)
        assert len(token) >= 32
        assert [token] == [*secret_tokens(again, secret)]
        assert [token] != [*secret_tokens(other, secret)]


def test_nobody_else_can_open_the_lock(tmp_path: Path) -> None:
    """Who can open it can hold it, and no server would start; 0.2.0 let everyone read it."""
    for earlier in ("none", "0.2.0"):
        data_dir = tmp_path / earlier
        data_dir.mkdir()
        if earlier == "0.2.0":
            (data_dir / "lock").touch(mode=0o644)
        with locked(data_dir):
            assert stat.S_IMODE((data_dir / "lock").stat().st_mode) == 0o600
