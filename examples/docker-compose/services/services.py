"""Two services with the official OpenTelemetry SDK, and their load.

    services.py storefront    answers GET /, and requests http://orders:8080/ for it
    services.py orders        answers GET /, and reads one request in LATE_ONE_IN late
    services.py load          requests http://storefront:8080/ RATE times a second
    services.py check URL...  succeeds if every URL answers

The SDK reads OTEL_SERVICE_NAME and OTEL_EXPORTER_OTLP_ENDPOINT.
"""

import http.client
import http.server
import itertools
import os
import select
import sys
import threading
import time
import urllib.request

PORT = 8080
# The delay of late reads, in seconds.
LATE = 0.2
TIMEOUT = 5


class Connection(threading.local):
    """A connection to a service for each thread."""

    def __init__(self, host):
        self.host, self.connection = host, None

    def get(self, headers):
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.host, PORT, timeout=TIMEOUT)
        try:
            self.connection.request("GET", "/", headers=headers)
            return self.connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise


def tracer():
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)
    return trace.get_tracer("example")


def serve(answer, late_one_in=0):
    """Answers requests with `answer()` in a span of the server."""
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    spans, requests = tracer(), itertools.count(1)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self):
            # The request waits in the socket until it is read.
            select.select([self.connection], [], [])
            if late_one_in and next(requests) % late_one_in == 0:
                time.sleep(LATE)
            super().handle_one_request()

        def do_GET(self):
            context = propagate.extract(dict(self.headers))
            with spans.start_as_current_span("GET /", context=context, kind=SpanKind.SERVER):
                body = answer(spans)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("", PORT), Handler).serve_forever()


def ask_orders():
    """Returns an answer that requests `orders` in a span of the client."""
    from opentelemetry import propagate
    from opentelemetry.trace import SpanKind

    orders = Connection("orders")

    def answer(spans):
        with spans.start_as_current_span("GET orders", kind=SpanKind.CLIENT):
            headers = {}
            propagate.inject(headers)
            return orders.get(headers)

    return answer


def load():
    threads = 4
    pause = threads / float(os.environ.get("RATE", "20"))
    storefront = Connection("storefront")

    def ask():
        while True:
            try:
                storefront.get({})
            except (OSError, http.client.HTTPException) as error:
                print(f"a request failed: {error}", flush=True)
            time.sleep(pause)

    for _ in range(threads):
        threading.Thread(target=ask).start()


def check(urls):
    for url in urls:
        urllib.request.urlopen(url, timeout=TIMEOUT).read()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["storefront"]:
            serve(ask_orders())
        case ["orders"]:
            serve(lambda _: b"ten orders\n", int(os.environ.get("LATE_ONE_IN", "20")))
        case ["load"]:
            load()
        case ["check", *urls]:
            check(urls)
        case _:
            sys.exit(__doc__)
