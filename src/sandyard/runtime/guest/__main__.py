"""Handles one request to a machine elsewhere, with one line of JSON as the response, or several for
large ones."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from . import PATHS, RefusedError, write_line

OPERATIONS = {
    "files": ("stat_file", "set_attributes", "make_folder", "move", "remove"),
    "transfers": ("list_folder", "check_readable", "put_file", "apply", "read_tar", "write_tar"),
    "shim": ("start", "stop"),
    "processes": ("list_all", "get", "wait", "signal", "resize", "follow", "read_log"),
    "machine": ("prepare", "end", "usage", "listening"),
}
"""By module: only the requested one is imported, because imports take time."""
_WITH_PATHS = ("files", "transfers")


def find(operation: str) -> Callable[..., Any]:
    [module] = [name for name, operations in OPERATIONS.items() if operation in operations]
    found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), operation)
    return partial(found, PATHS) if module in _WITH_PATHS else found


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    try:
        result: Any = find(name)(**arguments)
        if isinstance(result, Iterator):
            for item in result:
                if item is not None:
                    write_line({"item": item})
            result = None
        write_line({"result": result})
    except RefusedError as refused:
        write_line({"refused": refused.code, "message": str(refused)})
    except OSError as error:
        write_line({"errno": error.errno or 0, "message": str(error)})


if __name__ == "__main__":
    main()
