"""A server and a client of gRPC with the official instrumentation. The server is stopped while one request in a hundred arrives, because
gRPC's own threads read.

    grpc_app.py server SERVICE NAMESPACE ADDRESS PORT
    grpc_app.py client SERVICE NAMESPACE ADDRESS PORT REQUESTS PROCESS
"""

import concurrent.futures
import os
import pathlib
import signal
import time

import grpc
from opentelemetry.instrumentation.grpc import GrpcInstrumentorClient, GrpcInstrumentorServer

import sdk

# Without pings for the estimate of the bandwidth, and answers to them: they would merge with the request in the server's queue, and the kernel
# keeps the timestamp of the last segment.
OPTIONS = [("grpc.http2.bdp_probe", 0)]
TARGET = f"[{sdk.address}]:{sdk.port}" if ":" in sdk.address else f"{sdk.address}:{sdk.port}"


def serve():
    GrpcInstrumentorServer().instrument()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=2), options=OPTIONS)
    get = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Orders", {"Get": get}),))
    server.add_insecure_port(TARGET)
    server.start()
    sdk.ready()
    server.wait_for_termination()


def is_stopped(process):
    """Returns true if each thread is stopped by a signal."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in pathlib.Path(f"/proc/{process}/task").glob("*/stat")]
    return set(states) == {"T"}


def call():
    GrpcInstrumentorClient().instrument()
    channel = grpc.insecure_channel(TARGET, options=OPTIONS)
    get = channel.unary_unary("/shop.Orders/Get")
    for number in range(sdk.requests):
        if not sdk.is_late(number):
            get(b"order")
            continue
        os.kill(sdk.server, signal.SIGSTOP)
        try:
            while not is_stopped(sdk.server):
                time.sleep(0.001)
            answer = get.future(b"order")
            time.sleep(sdk.LATE)
        finally:
            os.kill(sdk.server, signal.SIGCONT)
        answer.result()
    sdk.provider.shutdown()


serve() if sdk.role == "server" else call()
