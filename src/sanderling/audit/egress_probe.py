"""Tries to get out of a sandbox, inside it: prints `refused NAME` or `reached NAME` for each way, then `done`."""

import os
import socket

ADDRESSES = (
    ("a resolver", socket.AF_INET, ("1.1.1.1", 53)),
    ("a web server", socket.AF_INET, ("8.8.8.8", 443)),
    ("cloud metadata", socket.AF_INET, ("169.254.169.254", 80)),
    ("a resolver by IPv6", socket.AF_INET6, ("2606:4700:4700::1111", 53)),
)
CONNECT_S = 2.0


def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as channel:
        channel.settimeout(CONNECT_S)
        channel.connect(address)


def sends(address):
    """A datagram leaves where there is a route, and an answer comes where there is a way back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(CONNECT_S)
        channel.sendto(bytes.fromhex("1d2e01000001000000000000076578616d706c65036f72670000010001"), address)
        channel.recv(512)


def interfaces():
    with open("/proc/net/dev", encoding="utf-8") as file:  # noqa: PTH123
        names = {line.split(":")[0].strip() for line in file if ":" in line}
    if not names - {"lo"}:
        raise OSError("only the loopback")


def proxy():
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        raise OSError("no proxy is named")


def report(name, attempt):
    try:
        attempt()
    except (OSError, ValueError):
        print("refused " + name, flush=True)  # noqa: T201
    else:
        print("reached " + name, flush=True)  # noqa: T201


def main():
    for name, family, address in ADDRESSES:
        report(name, lambda family=family, address=address: connects(family, address))
    report("a datagram's answer", lambda: sends(("1.1.1.1", 53)))
    report("a name", lambda: socket.getaddrinfo("example.org", 80))
    report("a package index", lambda: socket.getaddrinfo("pypi.org", 443))
    report("a network interface", interfaces)
    report("a proxy in the variables", proxy)
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
