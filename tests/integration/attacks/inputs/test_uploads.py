"""Uploads that grow: nothing of them is stored outside the sandbox."""

import gzip
import tempfile
from pathlib import Path

import pytest

from tests.integration.attacks.inputs.conftest import Yard

_FORM = "multipart/form-data; boundary=x"
_SIZE = 8 << 20


def part(name: str, content: bytes) -> bytes:
    disposition = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    return b"--x\r\n" + disposition.encode() + b"\r\n\r\n" + content + b"\r\n"


async def test_a_form_is_streamed_into_the_sandbox(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwritable = tmp_path / "nowhere"
    monkeypatch.setattr(tempfile, "tempdir", str(unwritable))  # a file there would fail
    form = part("/workspace/a", b"a" * _SIZE) + part("/workspace/b", b"b") + b"--x--\r\n"
    inside = await yard.create_e2b()
    headers = inside | {"Content-Type": _FORM, "Content-Encoding": "gzip"}
    answer = await yard.call("POST", "/e2b/files", content=gzip.compress(form), headers=headers)
    assert answer.status_code == 200, answer.text
    assert [each["path"] for each in answer.json()] == ["/workspace/a", "/workspace/b"]
    for name, content in (("a", b"a" * _SIZE), ("b", b"b")):
        path = {"path": f"/workspace/{name}"}
        found = await yard.call("GET", "/e2b/files", params=path, headers=inside)
        assert found.content == content


@pytest.mark.parametrize(
    "form",
    [
        b"",
        b"--x",
        part("/workspace/a", b"a"),
        part("/workspace/a", b"a") + b"--x\r\n" + b"X" * 100_000,
        b"no form at all",
    ],
)
async def test_a_broken_form_is_refused(yard: Yard, form: bytes) -> None:
    headers = await yard.create_e2b() | {"Content-Type": _FORM}
    answer = await yard.call("POST", "/e2b/files", content=form, headers=headers)
    assert answer.status_code == 400, answer.text
