"""The file in which readings wait: what is wrong with it is told, and it stays as it is."""

from pathlib import Path

import pytest
from sandyard_client.errors import BufferUnusableError, SandyardClientError
from sandyard_client.reading_buffer import DiskFullError, ReadingBuffer


def reading(number: int) -> dict[str, object]:
    return {"batch_id": f"id-{number}", "sensors": {"number": number}}


def test_a_file_that_is_no_buffer_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "readings.db"
    path.write_bytes(b"not a database, but somebody may need it" * 50)
    before = path.read_bytes()
    with pytest.raises(BufferUnusableError, match=r"readings\.db: file is not a database"):
        ReadingBuffer(path)
    assert path.read_bytes() == before


def test_damage_found_while_reading_makes_the_buffer_unusable(tmp_path: Path) -> None:
    path = tmp_path / "readings.db"
    buffer = ReadingBuffer(path)
    buffer.add([reading(number) for number in range(500)])
    buffer.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    damaged = ReadingBuffer(path)
    with pytest.raises(BufferUnusableError):
        damaged.oldest(500)
    damaged.close()


@pytest.mark.parametrize("name", ["no-such-folder/readings.db", "."])
def test_a_file_that_can_not_be_opened_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(BufferUnusableError):
        ReadingBuffer(tmp_path / name)


def test_two_processes_may_share_a_buffer(tmp_path: Path) -> None:
    one, other = ReadingBuffer(tmp_path / "readings.db"), ReadingBuffer(tmp_path / "readings.db")
    one.add([reading(1), reading(2)])
    other.add([reading(2), reading(3)])
    assert [each["batch_id"] for each in one.oldest(9)] == ["id-1", "id-2", "id-3"]
    one.settle(["id-1", "id-2"], [])
    other.settle(["id-1", "id-3"], [])
    assert (len(one), len(other)) == (0, 0)
    one.close()
    other.close()


def test_everything_that_leaves_it_is_an_error_of_the_client() -> None:
    assert issubclass(DiskFullError, SandyardClientError)
