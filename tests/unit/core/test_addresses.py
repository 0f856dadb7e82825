"""The address guard and the reading of URLs: a table of every case, and properties."""

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given, strategies as st

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from msgplatform.core.http.addresses import (
    AddressGuard,
    canonical,
    embedded,
    from_numbers,
    is_inside,
)

EVERYTHING = ("0.0.0.0/0", "::/0")

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "172.15.255.255",
    "172.32.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
]
# Refused by default; the second column is the network that opens it.
CLOSED = [
    ("127.0.0.1", "127.0.0.0/8"),
    ("127.255.255.254", "127.0.0.0/8"),
    ("10.0.0.1", "10.0.0.0/8"),
    ("10.255.255.255", "10.0.0.0/8"),
    ("172.16.0.1", "172.16.0.0/12"),
    ("172.31.255.255", "172.16.0.0/12"),
    ("192.168.0.1", "192.168.0.0/16"),
    ("100.64.0.1", "100.64.0.0/10"),
    ("100.127.255.255", "100.64.0.0/10"),
    ("192.0.0.1", "192.0.0.0/24"),
    ("192.88.99.1", "192.88.99.0/24"),
    ("198.18.0.1", "198.18.0.0/15"),
    ("198.19.255.255", "198.18.0.0/15"),
    ("192.0.2.1", "192.0.2.0/24"),
    ("198.51.100.1", "198.51.100.0/24"),
    ("203.0.113.1", "203.0.113.0/24"),
    ("240.0.0.1", "240.0.0.0/4"),
    ("::1", "::1/128"),
    ("::ffff:127.0.0.1", "127.0.0.0/8"),
    ("::ffff:10.0.0.1", "::ffff:10.0.0.0/104"),
    ("fc00::1", "fc00::/7"),
    ("fdff::1", "fc00::/7"),
    ("100::1", "100::/64"),
    ("2001:db8::1", "2001:db8::/32"),
    ("3fff::1", "3fff::/20"),
    ("2001:2::1", "2001::/23"),
    ("2001:10::1", "2001::/23"),
    ("fec0::1", "fec0::/10"),
    ("4000::1", "4000::/3"),
    ("64:ff9b::8.8.8.8", "64:ff9b::/96"),
    ("64:ff9b:1::8.8.8.8", "64:ff9b:1::/48"),
    ("2002:808:808::1", "2002::/16"),
    ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", "2001::/32"),  # Teredo of 8.8.8.8
    ("::8.8.8.8", "::/96"),
]
# Refused even when everything is allowed.
ALWAYS = [
    "169.254.169.254",
    "169.254.0.1",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fd00:42::42",
    "fe80::1",
    "fe80::1%eth0",
    "fe80::a9fe:a9fe",
    "febf::1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:5601:5601",  # Teredo of 169.254.169.254
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "::ffff:0.0.0.0",
    "224.0.0.1",
    "239.255.255.255",
    "ff02::1",
    "ff0e::1",
    "255.255.255.255",
]
NO_ADDRESS = ["", "localhost", "127.1", "0x7f.0.0.1", "127.0.0.1/8", "1.2.3.4.5", "::g", " 8.8.8.8"]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_is_permitted(address: str) -> None:
    assert AddressGuard().reason(address) == ""


@pytest.mark.parametrize(("address", "network"), CLOSED)
def test_closed_until_allowed(address: str, network: str) -> None:
    assert AddressGuard().reason(address)
    assert AddressGuard([network]).reason(address) == ""
    # An entry for something else opens nothing.
    assert AddressGuard(["8.0.0.0/8", "2a00::/16"]).reason(address)


@pytest.mark.parametrize("address", ALWAYS)
def test_refused_whatever_is_allowed(address: str) -> None:
    assert AddressGuard().reason(address)
    assert AddressGuard(EVERYTHING).reason(address)
    assert AddressGuard([*EVERYTHING, "169.254.169.254/32", "fe80::/10"]).reason(address)


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_what_is_no_address_is_refused(address: str) -> None:
    assert "not an address" in AddressGuard(EVERYTHING).reason(address)


@pytest.mark.parametrize(
    "address",
    ["64:ff9b::10.0.0.1", "2002:a00:1::1", "2001:0:1:2:3:4:f5ff:fffe", "::10.0.0.1"],
)
def test_a_tunnel_needs_both_ends_allowed(address: str) -> None:
    outer = ["64:ff9b::/96", "2002::/16", "2001::/32", "::/96"]
    assert "10.0.0.1" in AddressGuard(outer).reason(address)
    assert AddressGuard(["10.0.0.0/8"]).reason(address)
    assert AddressGuard([*outer, "10.0.0.0/8"]).reason(address) == ""


def test_a_reason_is_a_sentence_with_the_address() -> None:
    assert AddressGuard().reason("::ffff:10.0.0.1") == "10.0.0.1 is a private address."


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "example.com", "10.0.0.0/33"])
def test_an_allow_list_that_is_wrong_is_an_error(entry: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        AddressGuard([entry])


@given(st.ip_addresses(v=4))
def test_an_ipv6_disguise_never_helps(address: IPv4Address) -> None:
    guard = AddressGuard()
    bare = bool(guard.reason(str(address)))
    assert bool(guard.reason(f"::ffff:{address}")) == bare
    bits = int(address)
    disguises = [
        IPv6Address((0x2002 << 112) | bits << 80),
        IPv6Address((0x64FF9B << 96) | bits),
        IPv6Address((0x20010000 << 96) | (~bits & 0xFFFFFFFF)),
    ]
    for disguise in disguises:
        assert embedded(disguise) == address
        opened = AddressGuard(["2002::/16", "64:ff9b::/96", "2001::/32"])
        assert bool(opened.reason(str(disguise))) == bare


@given(st.ip_addresses())
def test_allowing_everything_opens_no_more_than_it_says(
    address: IPv4Address | IPv6Address,
) -> None:
    if AddressGuard(EVERYTHING).reason(str(address)):
        assert AddressGuard().reason(str(address))


@pytest.mark.parametrize(
    ("address", "network", "expected"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "::ffff:10.0.0.0/104", True),
        ("10.1.2.3", "::/0", False),
        ("2606:4700::1", "::/0", True),
        ("2606:4700::1%eth0", "2606:4700::/32", True),
        ("64:ff9b::a01:203", "10.0.0.0/8", False),  # where it leads to is another matter
        ("nonsense", "0.0.0.0/0", False),
        ("010.1.2.3", "0.0.0.0/0", False),
    ],
)
def test_inside(address: str, network: str, expected: bool) -> None:
    other = ip_network("192.0.2.0/24")
    assert is_inside(address, (other, ip_network(network))) is expected
    assert not is_inside(address, ())


# -- IPv4 by numbers -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("127.65535", "127.0.255.255"),
        ("0", "0.0.0.0"),
        ("010.0.0.1", "8.0.0.1"),
        ("4294967295", "255.255.255.255"),
        ("169.0xfea9fe", "169.254.169.254"),
    ],
)
def test_ipv4_by_numbers(host: str, address: str) -> None:
    assert str(from_numbers(host)) == address


@pytest.mark.parametrize("host", ["example.com", "1.2.3.com", "0xg", "localhost", "1e3", "１"])
def test_names_are_not_numbers(host: str) -> None:
    assert from_numbers(host) is None


@pytest.mark.parametrize(
    "host",
    ["256.0.0.1", "1.2.3.4.5", "4294967296", "a.1", "1..2", "08", "1.2.3.256", "-1.2", ".1", "0x",
     "1 .2"],
)  # fmt: skip
def test_numbers_that_are_no_address(host: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_numbers(host)


def test_canonical_drops_zone_and_mapping() -> None:
    assert canonical("fe80::1%2") == IPv6Address("fe80::1")
    assert canonical("::ffff:7f00:1") == IPv4Address("127.0.0.1")


# -- URLs ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "host", "port", "rebuilt"),
    [
        ("http://example.com", "example.com", 80, "http://example.com/"),
        ("HTTPS://Example.COM/A?b=C", "example.com", 443, "https://example.com/A?b=C"),
        ("http://example.com:8080/x", "example.com", 8080, "http://example.com:8080/x"),
        ("http://example.com:443", "example.com", 443, "http://example.com:443/"),
        ("https://example.com:/x", "example.com", 443, "https://example.com/x"),
        ("http://example.com.", "example.com", 80, "http://example.com/"),
        ("http://example.com?q=1", "example.com", 80, "http://example.com/?q=1"),
        ("http://example.com/#secret", "example.com", 80, "http://example.com/"),
        ("http://example.com/a/../b", "example.com", 80, "http://example.com/a/../b"),
        ("http://example.com/%41é", "example.com", 80, "http://example.com/%41%C3%A9"),
        ("http://my_service/x", "my_service", 80, "http://my_service/x"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "http://xn--bcher-kva.example/"),
        ("http://例え.テスト/", "xn--r8jz45g.xn--zckzah", 80, "http://xn--r8jz45g.xn--zckzah/"),
        ("http://[2606:4700::1]/", "2606:4700::1", 80, "http://[2606:4700::1]/"),
        ("http://[2606:4700:0::1]:81/", "2606:4700::1", 81, "http://[2606:4700::1]:81/"),
    ],
)
def test_urls(url: str, host: str, port: int, rebuilt: str) -> None:
    found = destinations.parse(url)
    assert (found.host, found.port, found.url) == (host, port, rebuilt)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1:80/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://１２７.０.０.１/",  # full-width digits
        "http://127。0。0。1/",  # ideographic full stops
        "http://①②⑦.⓪.⓪.①/",  # circled digits
    ],
)
def test_every_spelling_of_loopback_is_loopback(url: str) -> None:
    found = destinations.parse(url)
    assert found.address == found.host == "127.0.0.1"
    assert found.url.startswith("http://127.0.0.1/")
    assert AddressGuard().reason(found.address)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http:/example.com",
        "http:///path",
        "http://",
        "http://?q",
        "http://user@example.com/",
        "http://user:pw@example.com/",
        "http://@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com:80@127.0.0.1/",
        "http://127.0.0.1\\@example.com/",
        "http://example.com\\.evil.test/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:99999999/",
        "http://example.com:８０/",
        "http://example.com:80:81/",
        "http://example.com:+80/",
        "http://exa mple.com/",
        "http://example.com/a b",
        " http://example.com/",
        "http://example.com/\n",
        "http://example.com/\r\nHost: x",
        "http://exam\tple.com/",
        "http://example.com/\x00",
        "http://example.com/\x7f",
        "http://\xa0example.com/",
        "http://%31%32%37.0.0.1/",
        "http://127.0.0.1%2f@example.com/",
        "http://example%2ecom/",
        "http://example..com/",
        "http://.example.com/",
        "http://example.com../",
        "http://-example.com/",
        "http://exam!ple.com/",
        "http://256.256.256.256/",
        "http://1.2.3.4.5/",
        "http://0x7f.0.0.0x1g.1/",
        "http://[::1",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.x]/",
        "http://::1/",
        "http://[127.0.0.1]/",
        "http://faß.de/",
        "http://a\u200db.example/",
        "http://a℀b.example/",  # becomes a slash when normalised
        "http://example.com／x@y/",
        "http://\ud800.example/",
        "http://example.com/\ud800",
        f"http://{'a' * 64}.example/",
        f"http://{'a.' * 130}example/",
        f"http://example.com/{'a' * 5000}",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        destinations.parse(url)
    assert "pw" not in str(caught.value)


@given(st.text(max_size=60))
def test_a_url_is_read_or_refused(text: str) -> None:
    for url in (text, f"http://{text}/", f"http://example.com/{text}"):
        try:
            found = destinations.parse(url)
        except InvalidInput:
            continue
        assert found.url.isascii()
        # What was rebuilt reads the same again: one meaning only.
        again = destinations.parse(found.url)
        assert (again.host, again.port, again.url) == (found.host, found.port, found.url)
