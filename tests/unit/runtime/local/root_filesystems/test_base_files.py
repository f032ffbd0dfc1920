"""What machines share outside /usr is made once, however many start together."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from sandyard.runtime.local.root_filesystems.base_files import make_base_files


def test_those_who_make_it_together_have_the_same(tmp_path: Path) -> None:
    together = Barrier(4)

    def make() -> Path:
        together.wait()
        return make_base_files(tmp_path, {"/etc/x": "1"}, ["/opt/y"])

    with ThreadPoolExecutor(4) as threads:
        [made] = {future.result() for future in [threads.submit(make) for _ in range(4)]}
    assert list(tmp_path.iterdir()) == [made]
    assert (made / "etc" / "x").read_text() == "1"
    assert (made / "opt" / "y").is_dir()
