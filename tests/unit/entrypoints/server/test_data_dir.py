"""The secrets that are generated for a data dir."""

from pathlib import Path

from sandyard.bootstrap.registry import PARTS
from sandyard.entrypoints.server.data_dir import secret_tokens, with_secrets
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
