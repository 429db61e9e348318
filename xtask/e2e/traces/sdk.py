"""The arguments of a program, its spans by the official OpenTelemetry SDK, and its network namespace.

OTEL_EXPORTER_OTLP_ENDPOINT is reached from the namespace in which the program starts: the exporter has a thread there, which starts
before the other threads enter their namespace.
"""

import ctypes
import os
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

CLONE_NEWNET = 0x40000000
# The delay of late reads, in seconds.
LATE = 0.15

role, service, namespace, address, port = sys.argv[1:6]
port = int(port)
# The number of requests, and the process of the server.
requests, server = [int(number) for number in sys.argv[6:8]] or (0, 0)

provider = TracerProvider(resource=Resource.create({"service.name": service}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("app")

descriptor = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
    raise OSError(ctypes.get_errno(), "setns")


def is_late(number):
    """Returns true for one request in a hundred."""
    return number % 100 == 50


def ready():
    """Reports that the server accepts requests."""
    print("listening", flush=True)
