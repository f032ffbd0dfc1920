"""What an operator is told to take along, and what the move takes along itself."""

from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from sandyard.entrypoints.move.belongings import take_along
from sandyard.settings import Settings, load_settings
from sandyard.wiring.stores import Store


def settings_with(pepper: str | None) -> Settings:
    loaded = load_settings()
    secret = None if pepper is None else SecretStr(pepper)
    admin = SecretStr("admin-token-of-the-tests")
    section = loaded.telemetry.model_copy(
        update={"api_key_pepper": secret, "telemetry_admin_token": admin}
    )
    return replace(loaded, telemetry=section)


def told(settings: Settings, data_dir: Path, source: str, target: str, part: str) -> list[str]:
    pair = (Store(settings, data_dir, part, source), Store(settings, data_dir, part, target))
    return list(take_along([pair], data_dir))


def test_a_generated_secret_is_named_with_its_file_and_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "secrets" / "api_key_pepper"
    file.parent.mkdir()
    file.write_text("generated-pepper")
    lines = told(settings_with(None), tmp_path, "sqlite", "postgresql", "telemetry")
    assert lines == [f"Set API_KEY_PEPPER to the content of {file}."]


def test_a_secret_of_the_settings_goes_into_the_data_dir(tmp_path: Path) -> None:
    told(settings_with("given-pepper"), tmp_path, "postgresql", "sqlite", "telemetry")
    file = tmp_path / "secrets" / "api_key_pepper"
    assert file.read_text() == "given-pepper"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_secret_that_is_not_known_or_differs_is_named(tmp_path: Path) -> None:
    [unknown, *_] = [
        line
        for line in told(settings_with(None), tmp_path, "dynamodb", "sqlite", "telemetry")
        if "API_KEY_PEPPER" in line
    ]
    assert "the data depends on it" in unknown
    file = tmp_path / "secrets" / "api_key_pepper"
    file.write_text("another-pepper")
    lines = told(settings_with("given-pepper"), tmp_path, "dynamodb", "sqlite", "telemetry")
    assert any("has another API_KEY_PEPPER" in line for line in lines)
    assert file.read_text() == "another-pepper"


def test_the_files_of_sandboxes_are_named(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    lines = told(load_settings(), tmp_path, "sqlite", "postgresql", "platform")
    assert any(f"--data-dir {tmp_path}" in line for line in lines)


def test_the_store_of_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshot-store").write_text("s3://bucket/files\n")
    lines = told(load_settings(), tmp_path, "sqlite", "postgresql", "platform")
    assert "Files of stopped sandboxes stay in s3://bucket/files: keep SNAPSHOT_STORE." in lines
