"""A client and a server that talk over TCP and UDP, so that there is something to measure.

    talk.py server           answers on port 7000, TCP and UDP, until it is stopped
    talk.py client HOST      asks there RATE times a second (50 by default) over each, and reports every ten seconds
"""

import os
import signal
import socket
import sys
import threading
import time

PORT = 7000
REQUEST = b"?" * 200
# Several segments, so that TCP has something to coalesce.
ANSWER = b"!" * 16_000
TIMEOUT = 2.0
# Connections end and begin as they do in life, not once for good.
EXCHANGES_PER_CONNECTION = 200


def read_exactly(connection, length):
    """All of a message, or b"" when the other side is done."""
    received = bytearray()
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            return b""
        received += part
    return bytes(received)


def answer_connection(connection):
    with connection:
        try:
            while read_exactly(connection, len(REQUEST)):
                connection.sendall(ANSWER)
        except OSError as error:
            print(f"a connection broke: {error}", flush=True)


def answer_datagrams(datagrams):
    while True:
        message, sender = datagrams.recvfrom(2048)
        datagrams.sendto(message, sender)


def serve():
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", PORT))
    threading.Thread(target=answer_datagrams, args=(datagrams,), daemon=True).start()
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        print(f"answering on port {PORT}, TCP and UDP", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer_connection, args=(connection,), daemon=True).start()


def talk(host, period, counts):
    """Exchanges until the connection has had its share. Raises OSError when the server is away."""
    with (
        socket.create_connection((host, PORT), timeout=TIMEOUT) as connection,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.connect((host, PORT))
        datagrams.settimeout(TIMEOUT)
        for _ in range(EXCHANGES_PER_CONNECTION):
            started = time.monotonic()
            connection.sendall(REQUEST)
            if not read_exactly(connection, len(ANSWER)):
                raise ConnectionError("the server closed the connection")
            counts["tcp"] += 1
            datagrams.send(REQUEST)
            try:
                datagrams.recv(2048)
                counts["udp"] += 1
            except TimeoutError:
                counts["udp lost"] += 1
            time.sleep(max(0.0, period - (time.monotonic() - started)))


def ask(host):
    period = 1.0 / float(os.environ.get("RATE", "50"))
    counts = dict.fromkeys(("tcp", "udp", "udp lost"), 0)
    reported = time.monotonic()
    while True:
        try:
            talk(host, period, counts)
        except OSError as error:
            print(f"{host} does not answer, trying again: {error}", flush=True)
            time.sleep(1.0)
        if time.monotonic() - reported >= 10.0:
            print(", ".join(f"{name}: {count}" for name, count in counts.items()), flush=True)
            reported = time.monotonic()


def main(arguments):
    # The first process of a container is sent away by SIGTERM only if it says so.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    match arguments:
        case ["server"]:
            serve()
        case ["client", host]:
            ask(host)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
