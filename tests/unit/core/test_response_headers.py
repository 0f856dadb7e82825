"""What is kept of an answer's headers, and how Retry-After is read."""

import random
from encodings.aliases import aliases

import pytest

from msgplatform.core.http.response import (
    MAX_RETRY_AFTER,
    charset,
    kept_headers,
    retry_after,
)
from notify.sender.webhook import text

NOW = 1_763_714_400.0  # Fri, 21 Nov 2025 08:40:00 GMT
LIMIT = 8192


def block(*lines: bytes, start: bytes = b"HTTP/1.1 503 Service Unavailable") -> bytes:
    return b"\r\n".join((start, *lines, b"", b""))


# -- kept_headers ----------------------------------------------------------------------------------
def test_useful_headers_are_kept_as_they_came() -> None:
    useful = [
        b"Content-Type: application/json",
        b"content-length: 12",
        b"Date: Fri, 21 Nov 2025 08:40:00 GMT",
        b"Server: nginx",
        b"Retry-After: 7",
        b"X-Request-ID: 5f",
        b"traceparent: 00-4b-00-01",
        b"Via: 1.1 proxy",
        b"Cache-Control: no-store",
        b"RateLimit: limit=10",
        b"RateLimit-Policy: 10;w=1",
        b"X-RateLimit-Remaining: 0",
        b"webhook-id: msg_1",
    ]
    expected = "\n".join(["HTTP/1.1 503 Service Unavailable", *map(bytes.decode, useful)])
    assert kept_headers(block(*useful), LIMIT) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"Set-Cookie: session=s3cret",
        b"SET-COOKIE : session=s3cret",
        b"Set-Cookie2: session=s3cret",
        b"WWW-Authenticate: Bearer s3cret",
        b"Proxy-Authenticate: Basic s3cret",
        b"Proxy-Authorization: Basic s3cret",
        b"Authorization: Bearer s3cret",
        b"Authentication-Info: s3cret",
        b"X-Api-Key: s3cret",
        b"webhook-secret: s3cret",
        b"Webhook-Authorization: s3cret",
        b"X-RateLimit-Token: s3cret",
        b"Set-Cookie:\r\n session=s3cret",
        b"Set-Cookie: a=b;\r\n\tDate: s3cret",
        b"Location: https://sink.test/hook?token=s3cret#s3cret",
        b"Location: https://user:s3cret@sink.test/hook",
        b"Location: //user:x@s3cret@sink.test/hook",
        b"Location: /hook\r\n ?token=s3cret",
        b"no header at all, s3cret",
    ],
)
def test_secrets_are_not_kept(line: bytes) -> None:
    kept = kept_headers(block(b"Server: a", line, b"Via: b"), LIMIT)
    assert "s3cret" not in kept
    assert "Server: a" in kept.split("\n")
    assert "Via: b" in kept.split("\n")


def test_a_location_says_where_but_no_more() -> None:
    line = b"Location: https://user:pw@sink.test/a/b?X-Signature=1"
    assert kept_headers(line, LIMIT) == "Location: https://sink.test/a/b"
    assert kept_headers(b"location: /a@b//c@d", LIMIT) == "location: /a@b//c@d"


def test_a_folded_header_is_one_line() -> None:
    assert (
        kept_headers(b"Via: 1.1 a,\r\n  1.1 b\r\nDate: x\r\n", LIMIT)
        == "Via: 1.1 a, 1.1 b\nDate: x"
    )


def test_what_is_no_text_is_replaced() -> None:
    kept = kept_headers("Server: 小米".encode() + b"\xff\0\x1b[0m\r\n", LIMIT)
    assert kept == "Server: 小米\ufffd\ufffd\ufffd[0m"


def test_only_whole_lines_up_to_the_limit_in_bytes() -> None:
    raw = "Server: 小米\r\nVia: 1\r\nDate: x\r\n".encode()
    server, both = len("Server: 小米".encode()), len("Server: 小米\nVia: 1".encode())
    assert kept_headers(raw, 0) == ""
    assert kept_headers(raw, server - 1) == ""
    assert kept_headers(raw, server) == "Server: 小米"
    assert kept_headers(raw, both - 1) == "Server: 小米"
    assert kept_headers(raw, both) == "Server: 小米\nVia: 1"
    replaced = kept_headers(b"Server: \xff\r\n", 10)  # U+FFFD has three bytes
    assert replaced == ""


def test_nothing_makes_nothing() -> None:
    assert kept_headers(b"", LIMIT) == ""


# -- retry_after -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([], 0.0),
        ([b"Retry-After: 7"], 7.0),
        ([b"retry-after:120 "], 120.0),
        ([b"RETRY-AFTER: 0"], 0.0),
        ([b"Retry-After: -5"], 0.0),
        ([b"Retry-After: 1.5"], 0.0),
        ([b"Retry-After: soon"], 0.0),
        ([b"Retry-After:"], 0.0),
        ([b"Retry-After: \xb2"], 0.0),  # a digit to some
        ([b"Retry-After: " + b"9" * 400], MAX_RETRY_AFTER),
        ([b"Retry-After: 99999999"], MAX_RETRY_AFTER),
        ([b"Retry-After: 5", b"Retry-After: 9"], 5.0),
        # The three forms of a date, against the clock that was given.
        ([b"Retry-After: Fri, 21 Nov 2025 08:42:00 GMT"], 120.0),
        ([b"Retry-After: Friday, 21-Nov-25 08:42:00 GMT"], 120.0),
        ([b"Retry-After: Fri Nov 21 08:42:00 2025"], 120.0),
        ([b"Retry-After: Fri, 21 Nov 2025 08:30:00 GMT"], 0.0),
        ([b"Retry-After: Fri, 99 Nov 2025 08:42:00 GMT"], 0.0),
        ([b"Retry-After: Thu, 21 Nov 2999 08:42:00 GMT"], MAX_RETRY_AFTER),
        # A clock two years behind, or ahead, that says itself what time it is.
        (
            [b"Date: Tue, 21 Nov 2023 08:40:00 GMT", b"Retry-After: Tue, 21 Nov 2023 08:41:00 GMT"],
            60.0,
        ),
        (
            [b"Retry-After: Sun, 21 Nov 2027 08:41:00 GMT", b"Date: Sun, 21 Nov 2027 08:40:00 GMT"],
            60.0,
        ),
        ([b"Date: yesterday", b"Retry-After: Fri, 21 Nov 2025 08:42:00 GMT"], 120.0),
        ([b"X-Note: a\r\n Retry-After: 7"], 0.0),
    ],
)
def test_retry_after(lines: list[bytes], seconds: float) -> None:
    assert retry_after(block(*lines), NOW) == seconds


@pytest.mark.parametrize(
    ("content_type", "expected", "encoding"),
    [
        ("text/html; charset=gbk", "系统错误：订单不存在", "gbk"),
        ('text/html; CHARSET="GB2312"', "镕基", "gb18030"),
        ("text/plain;charset=Shift_JIS", "注文が存在しません", "shift_jis"),
        ("text/plain; charset=iso-8859-1", "Größe", "latin-1"),
        ("text/plain; charset=utf-16", "订单", "utf-16"),
        # No codecs of texts: what they name is read as UTF-8.
        ("text/plain; charset=base64", "Zm9v", "utf-8"),
        ("text/plain; charset=rot13", "abc", "utf-8"),
        ("text/plain; charset=zlib", "abc", "utf-8"), ("text/plain; charset=idna", "abc", "utf-8"),
        ("text/plain; charset=nothing-known", "订单", "utf-8"), ("text/plain", "订单", "utf-8"),
    ],
)  # fmt: skip
def test_an_answer_is_read_in_the_charset_that_it_names(
    content_type: str, expected: str, encoding: str
) -> None:
    headers = f"HTTP/1.1 500 Error\r\nContent-Type: {content_type}\r\n\r\n".encode()
    assert text(expected.encode(encoding), 1000, charset(headers)) == expected


@pytest.mark.parametrize("name", sorted({*aliases, *aliases.values()}))
def test_an_answer_in_any_charset_is_a_text_that_json_carries(name: str) -> None:
    encoding = charset(f"Content-Type: text/plain; charset={name}\r\n".encode())
    for body in (b"a+2AE-b", b"\\ud800", random.Random(1).randbytes(1000)):
        text(body, 1000, encoding).encode()
