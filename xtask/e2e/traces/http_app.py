"""A server and a client of HTTP/1. The server sleeps before it reads one request in a hundred.

    http_app.py server SERVICE NAMESPACE ADDRESS PORT
    http_app.py client SERVICE NAMESPACE ADDRESS PORT REQUESTS PROCESS
"""

import http.client
import http.server
import select
import time

from opentelemetry import propagate, trace

import sdk


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = 0

    def handle_one_request(self):
        select.select([self.connection], [], [])
        Handler.requests += 1
        if sdk.is_late(Handler.requests):
            time.sleep(sdk.LATE)
        super().handle_one_request()

    def do_GET(self):
        context = propagate.extract(dict(self.headers))
        with sdk.tracer.start_as_current_span("GET /orders", context=context, kind=trace.SpanKind.SERVER):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Server(http.server.HTTPServer):
    address_family = 10 if ":" in sdk.address else 2


if sdk.role == "server":
    server = Server((sdk.address, sdk.port), Handler)
    sdk.ready()
    server.serve_forever()
else:
    connection = http.client.HTTPConnection(sdk.address, sdk.port)
    for _ in range(sdk.requests):
        with sdk.tracer.start_as_current_span("GET /orders", kind=trace.SpanKind.CLIENT):
            headers = {}
            propagate.inject(headers)
            connection.request("GET", "/orders", headers=headers)
            connection.getresponse().read()
    sdk.provider.shutdown()
