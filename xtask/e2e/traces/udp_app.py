"""A receiver and a sender of datagrams. The receiver sleeps before it reads one datagram in a hundred. Datagrams carry no context; the
spans show the times of the programs.

    udp_app.py server SERVICE NAMESPACE ADDRESS PORT
    udp_app.py client SERVICE NAMESPACE ADDRESS PORT REQUESTS PROCESS
"""

import select
import socket
import time

import sdk

# The hook of some kernels does not see the read of small datagrams.
SIZE = 8000

datagrams = socket.socket(socket.AF_INET6 if ":" in sdk.address else socket.AF_INET, socket.SOCK_DGRAM)

if sdk.role == "server":
    datagrams.bind((sdk.address, sdk.port))
    sdk.ready()
    number = 0
    while True:
        select.select([datagrams], [], [])
        number += 1
        if sdk.is_late(number):
            time.sleep(sdk.LATE)
        with sdk.tracer.start_as_current_span("receive", attributes={"number": str(number)}):
            _, sender = datagrams.recvfrom(SIZE)
        datagrams.sendto(b"ok", sender)
else:
    datagrams.connect((sdk.address, sdk.port))
    for number in range(1, sdk.requests + 1):
        with sdk.tracer.start_as_current_span("send", attributes={"number": str(number)}):
            datagrams.send(bytes(SIZE))
        datagrams.recv(SIZE)
    sdk.provider.shutdown()
