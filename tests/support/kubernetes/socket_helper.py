"""`python3 socket_helper.py PORT…` in the network of a Pod: it listens there on these ports, and
gives whoever holds its standard input those sockets, and a new one for each byte. Each Pod has one,
so it imports little."""

import socket
import sys
from collections.abc import Sequence


def serve(control: socket.socket, ports: Sequence[int]) -> None:
    listening = [socket.create_server(("127.0.0.1", port)) for port in ports]
    socket.send_fds(control, [b"."], [each.fileno() for each in listening])
    while control.recv(1):
        with socket.socket() as made:
            socket.send_fds(control, [b"."], [made.fileno()])


if __name__ == "__main__":
    serve(socket.socket(fileno=0), [int(port) for port in sys.argv[1:]])
