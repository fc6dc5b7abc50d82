"""The rule for one task's address, `host:port`."""

from __future__ import annotations

from tfdist.cluster.problems import Problems

_EXPECTED = "host:port, with a host name, an IPv4 address or an IPv6 address in brackets, and a port from 1 to 65535"


def check_address(name: str, address: object, problems: Problems) -> tuple[str, int] | None:
    """Checks one address and splits it.

    Args:
        name: Where the address stands, for the message, such as `cluster.worker[1]`.
        address: The value found there.
        problems: Takes a problem if there is one.

    Returns:
        The host (lower case, IPv6 without its brackets) and the port, or None if there was a problem.
    """

    def reject(what: str, fix: str) -> None:
        problems.add(what, name=name, value=address, expected=_EXPECTED, fix=fix)

    if not isinstance(address, str):
        reject("An address is not a string", f'write it as a string, such as "{_example(address)}"')
        return None
    if not address.isascii() or any(character.isspace() or not character.isprintable() for character in address):
        reject("An address has characters that no address can have", "remove spaces and control or non-ASCII ones")
        return None
    if "/" in address or "@" in address:
        reject("An address looks like a URL", "write only host:port, without scheme, user or path")
        return None
    host, port = _split(address)
    if ":" in host.strip("[]") and not (host.startswith("[") and host.endswith("]")):
        reject("An IPv6 address has no brackets", _bracketed(address))
        return None
    bare_host = host.removeprefix("[").removesuffix("]")
    if not bare_host or any(character in bare_host for character in "[],;\"'"):
        reject("An address has no usable host", 'put a host before the port, such as "10.0.0.1:2222"')
        return None
    if port is None or not port:
        reject("An address has no port", f'add one, such as "{host}:2222"')
        return None
    if not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        reject("An address has a port that is not a number from 1 to 65535", f'use a port such as "{host}:2222"')
        return None
    return bare_host.lower(), int(port)


def split_address(address: str) -> tuple[str, int]:
    """The host (IPv6 without its brackets) and the port of an address that is known to be valid."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether a valid address names this machine's loopback interface."""
    host, _ = split_address(address)
    return host.lower() in ("localhost", "::1") or host.startswith("127.")


def _split(address: str) -> tuple[str, str | None]:
    if address.startswith("[") and "]" in address:
        end = address.index("]") + 1
        host, rest = address[:end], address[end:]
        return (host, rest[1:]) if rest.startswith(":") else (host + rest, None)
    host, colon, port = address.rpartition(":")
    return (host, port) if colon else (address, None)


def _bracketed(address: str) -> str:
    host, _, port = address.strip("[]").rpartition(":")
    if len(port) >= 2 and port.isdigit() and host and not host.endswith(":"):
        return f'put the host in brackets: "[{host}]:{port}"'
    return f'put the host in brackets and add a port: "[{address.strip("[]")}]:2222"'


def _example(value: object) -> str:
    return f"localhost:{value}" if isinstance(value, int) and not isinstance(value, bool) else "10.0.0.1:2222"
