"""A hostile program looks for a way past the policy of its network, and finds none."""

import errno
import os
import socket
from pathlib import Path

from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import inside, started


async def it_reaches_no_network(runtime: LocalRuntime, _: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        listener.settimeout(0)
        secret = socket.socket(socket.AF_UNIX)
        secret.bind(f"\0sandyard-{os.getpid()}")
        secret.listen()
        async with started(runtime) as running:
            code = f"""
import socket
hosts = ("127.0.0.1", "127.0.0.53", "169.254.169.254", "10.0.0.1", "1.1.1.1", "0.0.0.0",
         "198.18.0.1", "198.18.0.2", "198.18.77.1", "224.0.0.1", "255.255.255.255",
         "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "2606:4700::1111")
for host in hosts:
    for port in ({port}, 53, 80, 443, 3129):
        try:
            with socket.create_connection((host, port), timeout=2) as made:
                made.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
                answer = made.recv(100)
                if answer and b" 403 blocked: " not in answer:
                    print("reached", host, port, answer)
        except OSError:
            pass
    for port in (123, 443, {port}):
        try:
            with socket.socket(type=socket.SOCK_DGRAM) as sent:
                sent.settimeout(0.2)
                sent.connect((host, port))
                sent.send(b"hello")
                print("heard", host, port, sent.recv(100))
        except OSError:
            pass
try:
    socket.socket(socket.AF_UNIX).connect(chr(0) + "sandyard-{os.getpid()}")
    print("reached the abstract socket")
except OSError:
    pass
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    print("has vsock")
except OSError as error:
    print(error.errno)
"""
            assert await inside(runtime, running, code) == f"{errno.EAFNOSUPPORT}"
        secret.close()
        try:
            listener.accept()
            raise AssertionError("a connection arrived")
        except BlockingIOError:
            pass


async def it_changes_nothing_of_its_network(runtime: LocalRuntime, _: Path) -> None:
    """Neither its interface nor its routes and rules, and it gets no raw packets."""
    async with started(runtime) as running:
        code = """
import socket, struct
def ask(protocol, kind, content):
    head = struct.pack("=IHHII", 16 + len(content), kind, 5, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as channel:
        channel.settimeout(2)
        channel.send(head + content)
        return struct.unpack_from("=i", channel.recv(4096), 16)[0]
eth0 = socket.if_nametoindex("eth0")
changes = {
    "interface": (0, 17, struct.pack("=BxHiII", 0, 0, eth0, 0, 0)),
    "address": (0, 20, struct.pack("=BBBBiHH4s", 2, 8, 0, 0, eth0, 8, 2, bytes((10, 0, 0, 1)))),
    "route": (0, 25, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 254, 2, 0)),
    "rules": (12, 10 << 8 | 2, struct.pack(">BBH", 2, 0, 0)),
}
for name, change in changes.items():
    try:
        if ask(*change) not in (-1, -13, -22):  # EPERM, EACCES; EINVAL: a rule needs a batch
            print("changed the", name)
    except OSError:
        pass
kinds = ((2, 3, 1), (2, 3, 255), (17, 3, 768))
for kind in kinds:
    try:
        socket.socket(*kind)
        print("has raw packets", kind)
    except OSError:
        pass
for port in (53, 80, 443):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            socket.socket(type=kind).bind(("198.18.0.1", port))
            print("has port", port)
        except OSError:
            pass
transparent = socket.socket()
try:
    transparent.setsockopt(0, 19, 1)  # a kernel of its own says yes, and does nothing
    transparent.bind(("192.0.2.1", 8888))
    print("is transparent")
except OSError:
    print("ok")
"""
        assert await inside(runtime, running, code) == "ok"


async def nobody_answers_for_hosts_outside(runtime: LocalRuntime, _: Path) -> None:
    """Not even a server of its own: what listens inside is reached at its own addresses alone."""
    async with started(runtime) as running:
        code = """
import socket
server = socket.create_server(("0.0.0.0", 8099))
for host in ("127.0.0.1", "198.18.0.2", "203.0.113.5"):
    with socket.create_connection((host, 8099), timeout=5) as made:
        server.settimeout(0.5)
        try:
            server.accept()
            print("reached", host)
        except TimeoutError:
            pass
"""
        assert await inside(runtime, running, code) == "reached 127.0.0.1\nreached 198.18.0.2"


async def endless_names_delay_and_fill_nothing(runtime: LocalRuntime, _: Path) -> None:
    """Names that the policy refuses are not resolved, so that they carry nothing outside. Malformed
    queries get no answer."""
    async with started(runtime) as running:
        code = """
import os, socket, struct, time
queries = socket.socket(type=socket.SOCK_DGRAM)
queries.connect(("198.18.0.1", 53))
queries.settimeout(0)
def query(number, name):
    labels = b"".join(bytes([len(each)]) + each for each in name.split(b"."))
    return struct.pack(">HHHHHH", number % 65536, 256, 1, 0, 0, 0) + labels + bytes((0, 0, 1, 0, 1))
addresses = set()
began = time.monotonic()
for number in range(5_000):
    for packet in (query(number, b"%d.evil.test" % number), os.urandom(40)):
        try:
            queries.send(packet)
        except OSError:
            pass
    try:
        while True:
            addresses.add(queries.recv(512)[-4:])
    except OSError:
        pass
took = time.monotonic() - began
found = socket.gethostbyname("one.more.test")
assert found.startswith(("198.18.", "198.19.")), found
assert socket.gethostbyname("one.more.test") == found
assert addresses
assert all(each[0] == 198 and each[1] in (18, 19) for each in addresses)
print("ok")
"""
        assert await inside(runtime, running, code) == "ok"
