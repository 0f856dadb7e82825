"""The guard against server-side request forgery: the addresses that the platform may connect to.

A subscriber's URL is a foreign text. The guard refuses addresses in the platform's own network: an
address is judged in its canonical form (an IPv4 address inside IPv6 is the IPv4 address), and a
name is refused when any of its addresses is.

The ranges are from IANA's special-purpose registries (RFC 6890), with the documented metadata
addresses of clouds.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from socket import inet_aton

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Ranges = tuple[tuple[Network, str], ...]


def _ranges(*lines: tuple[str, str]) -> Ranges:
    return tuple((ipaddress.ip_network(network), name) for network, name in lines)


# Refused whatever the allow list says: what answers there holds the machine's credentials, or is
# no single host.
_ALWAYS = _ranges(
    ("169.254.0.0/16", "a link-local or metadata address"),
    ("100.100.100.200/32", "a metadata address"),  # Alibaba Cloud
    ("168.63.129.16/32", "a metadata address"),  # Azure's WireServer, in public space
    ("192.0.0.192/32", "a metadata address"),  # Oracle Cloud
    ("fd00:ec2::/32", "a metadata address"),  # AWS
    ("fd20:ce::254/128", "a metadata address"),  # Google Cloud
    ("fd00:42::42/128", "a metadata address"),  # Scaleway
    ("fe80::/10", "a link-local address"),
    ("0.0.0.0/8", "an unspecified address"),  # connects to this very host
    ("::/128", "an unspecified address"),
    ("224.0.0.0/4", "a multicast address"),
    ("ff00::/8", "a multicast address"),
    ("255.255.255.255/32", "the broadcast address"),
)
# Refused unless the allow list opens them.
_CLOSED = _ranges(
    ("127.0.0.0/8", "a loopback address"),
    ("10.0.0.0/8", "a private address"),
    ("172.16.0.0/12", "a private address"),
    ("192.168.0.0/16", "a private address"),
    ("100.64.0.0/10", "a carrier-grade NAT address"),
    ("192.0.0.0/24", "a protocol assignment"),
    ("192.0.2.0/24", "a documentation address"),
    ("198.51.100.0/24", "a documentation address"),
    ("203.0.113.0/24", "a documentation address"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("198.18.0.0/15", "a benchmarking address"),
    ("240.0.0.0/4", "a reserved address"),
    ("::1/128", "a loopback address"),
    ("fc00::/7", "a private address"),
    ("64:ff9b::/96", "a NAT64 address"),
    ("64:ff9b:1::/48", "a NAT64 address"),
    ("100::/64", "a discard address"),
    ("2001::/23", "a protocol assignment"),  # Teredo, benchmarking, ORCHID
    ("2001:db8::/32", "a documentation address"),
    ("3fff::/20", "a documentation address"),
    ("2002::/16", "a 6to4 address"),
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")  # nothing else is assigned for global unicast
_MAPPED = IPv6Network("::ffff:0:0/96")
# The IPv4 address is the last 32 bits: NAT64 (both prefixes) and the deprecated compatible form.
_LAST_32_BITS = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/96", "::/96")))
_NUMBER = re.compile("[0-9]+|0[xX][0-9A-Fa-f]*")


def canonical(text: str) -> Address:
    """The address that `text` means; IPv4-mapped IPv6 becomes IPv4, a zone is dropped.

    Raises ValueError for anything but a complete address in standard notation.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def bracketed(host: str) -> str:
    """A name or an address in its form before a port."""
    return f"[{host}]" if ":" in host else host


def embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address to which a tunnel or translator would carry this IPv6 address, or None."""
    if isinstance(address, IPv4Address):
        return None
    if teredo := address.teredo:
        return teredo[1]  # the client's; the first is the server's
    bits = int(address)
    if bits > 1 and any(address in network for network in _LAST_32_BITS):
        return IPv4Address(bits & 0xFFFFFFFF)
    return address.sixtofour


def from_numbers(host: str) -> IPv4Address | None:
    """Parse IPv4 by inet_aton, as URLs do: 1 to 4 parts, each decimal, octal (0…) or hex (0x…).

    None if the last label is not a number, so that `host` is a name. Raises ValueError if the last
    label is a number but `host` is no address (such a name cannot exist).
    """
    numbers = [_NUMBER.fullmatch(label) for label in host.split(".")]
    if not numbers[-1]:
        return None
    with suppress(OSError):
        if all(numbers):  # inet_aton reads no further than a blank
            return IPv4Address(inet_aton(host))
    raise ValueError(f"{host} is no IPv4 address")


def is_inside(text: str, networks: Iterable[Network]) -> bool:
    """True if one of the networks holds this address; False for a text that is no address.

    IPv4-mapped IPv6 counts as IPv4, in the address and in the networks.
    """
    try:
        address = canonical(text)
    except ValueError:
        return False
    return any(address in _unmap(network) for network in networks)


class AddressGuard:
    """Judges addresses. `allow` permits networks (CIDR) that are refused by default.

    Link-local, metadata, multicast and unspecified addresses stay refused. An address that
    carries an IPv4 address (6to4, NAT64, Teredo) needs both to be permitted. Raises ValueError
    for an entry of `allow` that is no network.
    """

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._allow = tuple(_unmap(ipaddress.ip_network(network)) for network in allow)

    def reason(self, text: str) -> str:
        """The reason why this address is refused, as a sentence; '' if it is permitted."""
        try:
            address = canonical(text)
        except ValueError:
            return f"{text[:64]} is not an address."
        name = self._refusal(address)
        return f"{address} is {name}." if name else ""

    def _refusal(self, address: Address) -> str:
        if name := _match(address, _ALWAYS):
            return name
        inner = embedded(address)
        if inner is not None and (name := self._refusal(inner)):
            return f"an address that leads to {inner}, {name}"
        if any(address in network for network in self._allow):
            return ""
        if name := _match(address, _CLOSED):
            return name
        if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
            return "an address outside global unicast"
        return ""


@lru_cache(maxsize=8)
def own_reason(address: str) -> str:
    """The reason why the platform's own address is refused, or ''. The address may be private, as
    if OUTBOUND_ALLOW named it."""
    return AddressGuard([address]).reason(address)


def _match(address: Address, ranges: Ranges) -> str:
    return next((name for network, name in ranges if address in network), "")


def _unmap(network: Network) -> Network:
    """IPv4-mapped addresses are judged as IPv4, so that IPv4-mapped networks must be IPv4, too."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        first = IPv4Address(int(network.network_address) & 0xFFFFFFFF)
        return IPv4Network((int(first), network.prefixlen - 96))
    return network
