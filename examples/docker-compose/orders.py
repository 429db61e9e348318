"""A service and its client over HTTP, with spans of their own. The service reads one request in twenty late.

    orders.py server             answers on port 8080 until it is stopped
    orders.py client HOST        sends a request there ten times a second

Both send their spans to OTLP/HTTP at COLLECTOR, for example collector:4318. An application would use an OpenTelemetry SDK; this file
needs only Python.
"""

import os
import socket
import sys
import time

PORT = 8080
LATE = 0.2
COLLECTOR = os.environ.get("COLLECTOR", "collector:4318")
CLIENT, SERVER = 3, 2


def identifier(length):
    return os.urandom(length).hex()


def export(service, kind, trace, span, parent, start):
    """Sends one span; a collector that is not there yet loses it."""
    body = (
        '{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"%s"}}]},"scopeSpans":[{"spans":'
        '[{"traceId":"%s","spanId":"%s","parentSpanId":"%s","name":"GET /orders","kind":%d,"startTimeUnixNano":"%d",'
        '"endTimeUnixNano":"%d"}]}]}]}' % (service, trace, span, parent, kind, start, time.time_ns())
    )
    host, port = COLLECTOR.rsplit(":", 1)
    head = f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    try:
        with socket.create_connection((host, int(port)), 2) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            connection.recv(1024)
    except OSError as error:
        print(f"a span is lost: {error}", flush=True)


def read_message(connection):
    """The header section of a message, or an empty text at the end of the connection."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        part = connection.recv(4096)
        if not part:
            return ""
        received += part
    return received.decode()


def serve():
    listener = socket.create_server(("", PORT))
    requests = 0
    while True:
        connection, _ = listener.accept()
        with connection:
            # The first request may arrive meanwhile, and waits.
            requests += 1
            if requests % 20 == 0:
                time.sleep(LATE)
            request = read_message(connection)
            start = time.time_ns()
            for line in request.split("\r\n"):
                name, _, value = line.partition(": ")
                if name == "traceparent":
                    _, trace, parent, _ = value.split("-")
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    export("orders", SERVER, trace, identifier(8), parent, start)


def ask(host):
    while True:
        trace, span, start = identifier(16), identifier(8), time.time_ns()
        try:
            with socket.create_connection((host, PORT), 2) as connection:
                request = f"GET /orders HTTP/1.1\r\nHost: {host}\r\ntraceparent: 00-{trace}-{span}-01\r\n\r\n"
                connection.sendall(request.encode())
                read_message(connection)
            export("orders-client", CLIENT, trace, span, "", start)
        except OSError as error:
            print(f"a request failed: {error}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    serve() if sys.argv[1] == "server" else ask(sys.argv[2])
