"""What belongs to the moved data and is not in a database: secrets, and the files of sandboxes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import SecretStr

from sandyard.bootstrap.registry import get_spec
from sandyard.entrypoints.server.data_dir import secret_file
from sandyard.wiring.stores import Store


def take_along(pairs: Sequence[tuple[Store, Store]], data_dir: Path) -> Iterator[str]:
    """Take secrets into the data dir, if the data goes there; yields a line for everything that an
    operator has to take along."""
    for source, target in pairs:
        spec = get_spec(source.part)
        for secret in spec.secrets:
            given = getattr(spec.own_settings(source.settings), secret)
            yield from _secret(secret, given, target.engine, data_dir)
    if any(source.part == "platform" for source, _ in pairs):
        found = [name for name in ("runtime", "runtime-e2b") if (data_dir / name).exists()]
        if found:
            folders = ", ".join(str(data_dir / name) for name in found)
            yield f"The files of sandboxes stay in {folders}: keep --data-dir {data_dir}."
        store = data_dir / "snapshot-store"
        if store.exists():
            where = store.read_text().strip()
            yield f"Files of stopped sandboxes stay in {where}: keep SNAPSHOT_STORE."


def _secret(name: str, given: SecretStr | None, engine: str, data_dir: Path) -> Iterator[str]:
    """On SQLite a server reads its secrets from the data dir, on shared engines from settings."""
    file, variable = secret_file(data_dir, name), name.upper()
    if engine != "sqlite":
        if given is None and file.exists():
            yield f"Set {variable} to the content of {file}."
        return
    if given is None:
        if not file.exists():
            yield f"Set {variable} as before, or write it to {file}: the data depends on it."
        return
    if not file.exists():
        _write(file, given.get_secret_value())
        yield f"{variable} was written to {file}."
    elif file.read_text().strip() != given.get_secret_value():
        yield f"{file} has another {variable} than the settings: keep it set, or replace the file."


def _write(file: Path, value: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(value)
