"""Ports for programs that have to be told one."""

import random
import socket


def free_port() -> int:
    """One that nobody listens on now. It lies below those that systems hand out for outgoing connections, so that no
    connection of another test takes it before the program does."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket(family) as taken:
            if family == socket.AF_INET6:
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                taken.bind(("", port))
                return port
            except OSError:
                continue
