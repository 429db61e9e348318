"""An HTTP server and a client with spans of the official OpenTelemetry SDK, each in a network namespace.

    app.py server NAMESPACE ADDRESS PORT
    app.py client NAMESPACE ADDRESS PORT REQUESTS

The server sleeps before it reads one request in a hundred. OTEL_EXPORTER_OTLP_ENDPOINT is reached from the namespace in which the
program starts: the exporter has a thread there, which starts before the others enter their namespace.
"""

import ctypes
import http.client
import http.server
import os
import select
import sys
import time

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

CLONE_NEWNET = 0x40000000
LATE = 0.15

role, namespace, address, port = sys.argv[1:5]
provider = TracerProvider(resource=Resource.create({"service.name": role}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("app")

descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
    raise OSError(ctypes.get_errno(), "setns")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = 0

    def handle_one_request(self):
        select.select([self.connection], [], [])
        Handler.requests += 1
        if Handler.requests % 100 == 50:
            time.sleep(LATE)
        super().handle_one_request()

    def do_GET(self):
        context = propagate.extract(dict(self.headers))
        with tracer.start_as_current_span("GET /orders", context=context, kind=trace.SpanKind.SERVER):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Server(http.server.HTTPServer):
    address_family = 10 if ":" in address else 2


if role == "server":
    server = Server((address, int(port)), Handler)
    print("listening", flush=True)
    server.serve_forever()
else:
    connection = http.client.HTTPConnection(address, int(port))
    for _ in range(int(sys.argv[5])):
        with tracer.start_as_current_span("GET /orders", kind=trace.SpanKind.CLIENT):
            headers = {}
            propagate.inject(headers)
            connection.request("GET", "/orders", headers=headers)
            connection.getresponse().read()
    provider.shutdown()
