"""What a project is, by its files; and what the launcher shows and reports."""

import asyncio
import json
import re
import socket
import struct
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest

from sandyard.previews.launcher.detection import (
    MANIFESTS,
    RESTARTS,
    Application,
    detect,
    digest_of,
)
from sandyard.previews.launcher.preview import Preview
from sandyard.previews.launcher.serving import page
from sandyard.previews.model import sync_outcome
from sandyard.previews.providers.program import application_of

VITE = {"scripts": {"dev": "vite"}, "devDependencies": {"vite": "^6"}}
NEXT = {
    "scripts": {"dev": "next dev", "build": "next build", "start": "next start"},
    "dependencies": {"next": "15"},
}
EXPRESS = {
    "scripts": {"dev": "node --watch app.js", "start": "node app.js"},
    "dependencies": {"express": "5"},
}


def detected(folder: Path, **files: object) -> Application:
    for name, content in files.items():
        written = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(written)
    return detect(str(folder))


def test_files_alone_are_served_as_they_are(tmp_path: Path) -> None:
    assert detected(tmp_path, index__html="<h1>one</h1>") == Application("static")
    assert detected(tmp_path, package__json={"name": "no script"}).kind == "static"


@pytest.mark.parametrize(
    ("package", "kind", "start", "run"),
    [
        (
            VITE,
            "vite",
            "exec npm run dev -- --port $PORT --strictPort --host 127.0.0.1",
            "exec vite preview --port $PORT --strictPort --host 127.0.0.1",
        ),
        (
            NEXT,
            "next",
            "exec npm run dev -- -p $PORT -H 127.0.0.1",
            "exec npm run start -- -p $PORT -H 127.0.0.1",
        ),
        (EXPRESS, "express", "exec npm run dev", "exec npm run start"),
    ],
)
def test_a_package_with_a_script_dev(
    tmp_path: Path, package: dict[str, object], kind: str, start: str, run: str
) -> None:
    found = detected(tmp_path, package__json=package, requirements__txt="flask\n")
    assert (found.kind, found.start) == (kind, start)
    assert (found.install or "").startswith("npm install")
    published = detect(str(tmp_path), "run")
    assert (published.kind, published.start) == (kind, run)
    assert (published.install or "").endswith("&& npm run build") == ("build" in package["scripts"])  # type: ignore[operator]
    built = detect(str(tmp_path), "build")
    assert (built.start, (built.install or "").split(" && ")[-1]) == (None, "npm run build")


@pytest.mark.parametrize("kind", ["flask", "fastapi", "streamlit"])
def test_a_framework_of_python_starts_the_module_that_is_there(tmp_path: Path, kind: str) -> None:
    found = detected(tmp_path, requirements__txt=f"# web\n{kind.title()}>=1 # it\n", app__py="")
    assert found.kind == kind
    assert " app" in (found.start or "")
    assert f"'{kind.title()}>=1'" in (found.install or "")
    published = detect(str(tmp_path), "run").start or ""
    assert found.start in (published, f"{published} --reload", f"{published} --debug")


def test_dependencies_of_a_pyproject(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\ndependencies = ["fastapi[standard]>=0.1", "httpx"]\n'
    found = detected(tmp_path, pyproject__toml=project, main__py="")
    assert found.kind == "fastapi"
    assert "'fastapi[standard]>=0.1' 'httpx' 'uvicorn'" in (found.install or "")


def test_a_procfile_comes_first_and_installs_what_all_manifests_name(tmp_path: Path) -> None:
    found = detected(
        tmp_path, Procfile="web: make run\n", package__json=VITE, requirements__txt="flask\n"
    )
    assert (found.kind, found.start) == ("procfile", "make run")
    assert "npm install" in (found.install or "")
    assert "pip install" in (found.install or "")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("package__json", "{not json", "package.json is not valid JSON: Expecting property name"),
        ("package__json", "[]", "package.json is not a JSON object"),
        (
            "package__json",
            '{"scripts": 3}',
            "package.json is not a JSON object, or one of its scripts",
        ),
        ("pyproject__toml", "[project", "pyproject.toml is not valid TOML: "),
    ],
)
async def test_a_manifest_that_cannot_be_read_is_named_until_it_is_mended(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        detected(tmp_path, **{name: content})
    state = tmp_path.with_name(f"{tmp_path.name}-state")
    state.mkdir()
    preview = Preview(str(tmp_path), str(state))

    async def reported(phase: str) -> list[str]:
        async with asyncio.timeout(60):
            while True:
                with suppress(OSError):
                    found = json.loads((state / "state.json").read_text())
                    if found["phase"] == phase:
                        return list(found["lines"])
                await asyncio.sleep(0.05)

    running = asyncio.create_task(preview.run())
    try:
        assert any(line.startswith(f"preview: {reason}") for line in await reported("failed"))
        (tmp_path / name.replace("__", ".")).unlink()
        await reported("running")
        assert len(preview.lines) == 1
    finally:
        running.cancel()


def test_a_changed_manifest_is_another_digest_and_a_changed_page_is_not(tmp_path: Path) -> None:
    detected(tmp_path, package__json=VITE)
    before = digest_of(str(tmp_path))
    detected(tmp_path, index__html="<h1>one</h1>")
    assert digest_of(str(tmp_path)) == before
    detected(tmp_path, package__json=NEXT)
    assert digest_of(str(tmp_path)) != before


def test_a_sync_names_as_installed_what_the_launcher_installs_from() -> None:
    for path in MANIFESTS:
        assert sync_outcome({"Procfile": b"", "index.html": b""}, [path]) == "installed"
    assert {path for path in RESTARTS if sync_outcome({}, [path]) == "restarted"} == {"Procfile"}
    assert sync_outcome({"package.json": b'{"name": "x"}'}, []) == "installed"
    for content in (b"{not json", b"[]"):
        assert sync_outcome({"package.json": content}, ["package-lock.json"]) == "updated"


def test_a_sync_may_remove_the_folder_with_its_last_file(tmp_path: Path) -> None:
    site = tmp_path / "site"
    preview = Preview(str(site), str(tmp_path))
    assert preview.restarts() == set()
    site.mkdir()
    (site / "index.html").touch()
    (site / "package.json").touch()
    assert [Path(path).name for path, _ in preview.restarts()] == ["package.json"]


def test_the_page_escapes_what_the_project_wrote() -> None:
    shown = page("failed", "vite", deque(["<script>alert(1)</script>"]))
    assert "<script>" not in shown
    assert 'http-equiv="refresh"' in shown


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"phase": 1, "kind": 2, "lines": 3}'])
def test_a_state_that_a_program_has_spoilt_is_none(content: bytes) -> None:
    assert application_of(content) is None


def test_a_state_is_bounded() -> None:
    told = {"phase": "odd", "kind": "k" * 99, "exit_code": 1, "lines": ["x" * 9999] * 99}
    found = application_of(json.dumps(told).encode())
    assert found is not None
    assert (found.phase, len(found.kind), found.exit_code) == ("failed", 32, 1)
    assert (len(found.last_lines), len(found.last_lines[0])) == (40, 2000)


async def test_a_server_that_is_killed_before_it_answers_ends_the_connection(
    tmp_path: Path,
) -> None:
    """Its browser would wait forever for the answer."""
    preview = Preview(str(tmp_path), str(tmp_path))

    async def kill(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        linger = struct.pack("ii", 1, 0)  # reset
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with (
        await asyncio.start_server(kill, "127.0.0.1", preview.port),
        await asyncio.start_server(preview.pass_on, "127.0.0.1", 0) as front,
        asyncio.timeout(10),
    ):
        reader, writer = await asyncio.open_connection(*front.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
