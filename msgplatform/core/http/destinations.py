"""The destination of a URL. A strict parser reads the URL, and libcurl gets a URL rebuilt from the
result.

Attackers pass an address guard by URLs that two parsers read differently, so that the vetted
address is not the connected one. So ambiguous URLs are refused, and the original text is not used
any further.
"""

import re
from functools import lru_cache
from ipaddress import IPv6Address
from urllib.parse import quote

import msgspec

from msgplatform.core.characters import IGNORABLE
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http.addresses import bracketed, canonical, from_numbers
from msgplatform.core.lazy_text import lazy_message

MAX_LENGTH = 4096  # characters
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::([0-9]{0,5}))?")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# IDNA 2003 and 2008 read these characters differently: a guess may deliver to a wrong host.
_DEVIATING = frozenset("\u00df\u03c2\u200c\u200d")
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Destination(msgspec.Struct, frozen=True):
    """`host` is a lower-case ASCII name or a canonical address; `address` is set for an address."""

    scheme: str
    host: str
    port: int
    address: str
    url: str

    @property
    def origin(self) -> str:
        """Scheme, host and port, as in https://crm.example:443."""
        return f"{self.scheme}://{bracketed(self.host)}:{self.port}"


@lru_cache(maxsize=4096)
def parse(url: str) -> Destination:
    """Read an http or https URL. Raises InvalidInput with a sentence that does not repeat the
    URL."""
    if len(url) > MAX_LENGTH:
        raise InvalidInput(
            lazy_message("The URL is longer than %(most)d characters.", most=MAX_LENGTH)
        )
    if _FORBIDDEN.search(url):
        raise InvalidInput(
            lazy_message("The URL holds a space, a control character or a backslash.")
        )
    if invisible := IGNORABLE.search(url):
        raise InvalidInput(
            lazy_message(
                "The URL has a character that nobody sees (%(code)s): type it anew.",
                code=f"U+{ord(invisible[0]):04X}",
            )
        )
    match = _URL.fullmatch(url)
    if not match:
        raise InvalidInput(lazy_message("The URL does not begin with http:// or https://."))
    scheme, authority, path_and_query = match[1].lower(), match[2], match[3]
    host, address, port = _authority(authority, _DEFAULT_PORTS[scheme])
    authority_text = bracketed(host)
    if port != _DEFAULT_PORTS[scheme]:
        authority_text = f"{authority_text}:{port}"
    try:
        path = quote(path_and_query, safe=_PRINTABLE)
    except UnicodeError:  # half of a surrogate pair
        raise InvalidInput(lazy_message("The URL is not valid Unicode.")) from None
    if not path.startswith("/"):
        path = f"/{path}"
    return Destination(scheme, host, port, address, f"{scheme}://{authority_text}{path}")


def origin(url: str) -> str:
    """A URL's `Destination.origin`, whatever its path; the text before an unreadable one's path."""
    scheme, _colon, rest = url.partition("://")
    authority = re.split("[/?#]", rest)[0]
    try:
        return parse(f"{scheme}://{authority}").origin
    except InvalidInput:
        return f"{scheme}://{authority.rpartition('@')[2]}".lower()


def _authority(text: str, default_port: int) -> tuple[str, str, int]:
    if "@" in text:
        raise InvalidInput(
            lazy_message("The URL holds a user name or password; use a header instead.")
        )
    match = _AUTHORITY.fullmatch(text)
    if not match:
        raise InvalidInput(lazy_message("The URL's host or port cannot be read."))
    port = int(match[3]) if match[3] else default_port
    if not 0 < port < 65536:
        raise InvalidInput(lazy_message("The URL's port is not between 1 and 65535."))
    if match[1] is not None:
        host = address = _ipv6(match[1])
    else:
        host, address = _host(match[2])
    return host, address, port


def _ipv6(text: str) -> str:
    try:
        return str(canonical(str(IPv6Address(text))))
    except ValueError:
        raise InvalidInput(lazy_message("The URL's IPv6 address cannot be read.")) from None


def _host(text: str) -> tuple[str, str]:
    """(canonical host, its address if the host is an address)."""
    name = _ascii(text).lower().removesuffix(".")
    try:
        address = from_numbers(name)
    except ValueError:
        raise InvalidInput(
            lazy_message("The URL's host is a number, but no IPv4 address.")
        ) from None
    if address is not None:
        return str(address), str(address)
    if len(name) > 253 or not all(map(_LABEL.fullmatch, name.split("."))):
        raise InvalidInput(lazy_message("The URL's host is not a valid name."))
    return name, ""


def _ascii(text: str) -> str:
    """International names in their xn-- form; full-width digits and dots become ASCII."""
    if text.isascii():
        return text
    if _DEVIATING.intersection(text) or len(text) > 253:
        raise InvalidInput(lazy_message("Write the URL's host in its ASCII form (xn--…)."))
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidInput(
            lazy_message("The URL's host is not a valid international name.")
        ) from None
