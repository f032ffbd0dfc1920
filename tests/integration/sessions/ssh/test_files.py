"""SFTP and scp."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.integration.sessions.ssh.clients import SshClient, opened_session


@pytest.mark.parametrize("protocol", [(), ("-O",)])
async def test_scp_both_ways(ssh: SshClient, tmp_path: Path, protocol: tuple[str, ...]) -> None:
    content = os.urandom(3_000_001)
    (tmp_path / "sent").write_bytes(content)
    (tmp_path / "sent").chmod(0o750)

    up = await ssh.scp(str(tmp_path / "sent"), "box:folder-file", "-p", *protocol)
    down = await ssh.scp("box:folder-file", str(tmp_path / "received"), "-p", *protocol)

    assert (up.errors, down.errors, up.code, down.code) == ("", "", 0, 0)
    assert await ssh.box.read("folder-file") == content
    assert (tmp_path / "received").read_bytes() == content
    sent, received = (tmp_path / "sent").stat(), (tmp_path / "received").stat()
    assert (received.st_mode, int(received.st_mtime)) == (sent.st_mode, int(sent.st_mtime))


async def test_scp_of_a_folder(ssh: SshClient, tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "a b").write_text("one")
    (tmp_path / "src" / "empty").touch()

    await ssh.scp(str(tmp_path / "src"), "box:dst", "-r")
    await ssh.scp("box:dst", str(tmp_path / "back"), "-r")

    assert (tmp_path / "back" / "deep" / "a b").read_text() == "one"
    assert (tmp_path / "back" / "empty").read_bytes() == b""


async def test_what_sftp_does_to_files(ssh: SshClient, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    result = await ssh.sftp(
        f"put {tmp_path / 'file'} one",
        *("mkdir folder", "rename one folder/two", "chmod 600 folder/two"),
        *("ln -s two folder/link", "ln folder/two folder/hard", "ls -l folder", "pwd"),
        f"get folder/link {tmp_path / 'through'}",
        *("rm folder/two", "rm folder/hard", "rm folder/link", "rmdir folder", "ls"),
    )

    assert (result.code, result.errors) == (0, "")
    shown = result.out.decode()
    assert "-rw-------" in shown
    assert "/workspace" in shown
    assert "lrwxrwxrwx" in shown
    assert (tmp_path / "through").read_text() == "content"
    assert (await ssh.run("ls")).out == b""


async def test_a_transfer_that_was_broken_off_is_continued(ssh: SshClient, tmp_path: Path) -> None:
    content = os.urandom(500_000)
    (tmp_path / "whole").write_bytes(content)
    await ssh.box.write("up", content[:200_000])
    (tmp_path / "down").write_bytes(content[:100_000])
    await ssh.box.write("there", content)

    result = await ssh.sftp(
        f"reput {tmp_path / 'whole'} up",
        f"reget there {tmp_path / 'down'}",
    )

    assert result.errors == ""
    assert await ssh.box.read("up") == content
    assert (tmp_path / "down").read_bytes() == content


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("get nowhere", "not found"),
        ("get full", "not a regular file"),
        ("rmdir full", "Failure"),
        ("rename -l full/file other", "Failure"),
        ("put {here} other/below", "ermission denied"),
        ("mkdir full", "Failure"),
        ("symlink a other", "Failure"),
    ],
)
async def test_what_is_refused(ssh: SshClient, tmp_path: Path, line: str, refusal: str) -> None:
    (tmp_path / "here").write_bytes(b"three")
    await ssh.box.write("full/file", b"one")
    await ssh.box.write("other", b"two")

    result = await ssh.sftp(f"lcd {tmp_path}", line.format(here="here"))

    assert result.code == 1
    assert refusal in result.errors
    assert await ssh.box.read("other") == b"two"


async def test_an_upload_that_ends_midway_changes_nothing(ssh: SshClient, tmp_path: Path) -> None:
    await ssh.box.write("file", b"before")
    feed = tmp_path / "feed"
    feed.write_bytes(os.urandom(50_000_000))
    words = ["scp", *ssh.options(), "-l", "8000", "-P", str(ssh.port), str(feed)]
    process = await asyncio.create_subprocess_exec(*words, f"{ssh.user}@127.0.0.1:file")
    files = (await opened_session(ssh)).files
    async with asyncio.timeout(60):
        while len(await files.list(".")) == 1:
            await asyncio.sleep(0.05)
    process.kill()
    await process.wait()
    async with asyncio.timeout(60):
        while len(await files.list(".")) > 1:
            await asyncio.sleep(0.05)

    assert await ssh.box.read("file") == b"before"
