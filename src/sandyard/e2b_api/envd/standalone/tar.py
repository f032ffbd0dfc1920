"""`python -m sandyard.e2b_api.envd.standalone.tar PATH`: writes one line of JSON, empty or with the
reason why the folder can't be packed, and then the folder as a tar archive."""

import json
import sys

from sandyard.runtime.guest import PATHS
from sandyard.runtime.guest.transfers import enter_folder, pack

_PIECE_BYTES = 1 << 20


def main() -> None:
    output = sys.stdout.buffer
    try:
        names = enter_folder(PATHS, path=sys.argv[1])
    except OSError as error:
        output.write(json.dumps({"code": str(error.errno), "message": str(error)}).encode() + b"\n")
        return
    output.write(b"{}\n")
    output.flush()
    pack(names, output, piece_bytes=_PIECE_BYTES)


if __name__ == "__main__":
    main()
