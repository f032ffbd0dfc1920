"""A loop device over a file. Linux frees it when its last mount is gone, whichever process was
killed."""

import errno
import fcntl
import os
import struct

_CONTROL = "/dev/loop-control"
_CTL_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_AUTOCLEAR = 4
_INFO = "QQQQQIIII64s64s32sQQ"
_CONFIG_RESERVED = bytes(64)
_ATTEMPTS = 64


def attach(image: int) -> tuple[int, str]:
    """A loop device over the open file: its descriptor, which keeps it alive until it is mounted,
    and its path. The device keeps the file open, and with it a lock on the file. Raises OSError."""
    control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            path = f"/dev/loop{fcntl.ioctl(control, _CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, _config(image))
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process was faster
                    raise
            else:
                return device, path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, "no loop device is free")


def _config(image: int) -> bytes:
    info = struct.pack(_INFO, 0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR, b"sandyard", b"", b"", 0, 0)
    return struct.pack("II", image, 0) + info + _CONFIG_RESERVED
