"""What people and their programs put around a value."""

import pytest
from django.core.exceptions import ValidationError

from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations
from msgplatform.doors.api.intake import unquote_key
from notify.subscriptions import limits


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ('"h2"', "h2"),
        ("h2", "h2"),
        ('"a\\"b\\\\c"', 'a"b\\c'),
        ('"', '"'),
        ('"a', '"a'),
        ('""', ""),
    ],
)
def test_an_idempotency_key_may_be_a_quoted_string(header: str, key: str) -> None:
    """Draft ietf-httpapi-idempotency-key-header, 2.1."""
    assert unquote_key(header) == key


@pytest.mark.parametrize("character", ["\u200b", "\u200d", "\u2060", "\ufeff", "\u202e", "\u00ad"])
@pytest.mark.parametrize("url", ["http://exam{}ple.com/hook", "https://example.com/hook{}"])
def test_an_address_has_no_invisible_character(url: str, character: str) -> None:
    with pytest.raises(InvalidInput, match=f"U\\+{ord(character):04X}"):
        destinations.parse(url.format(character))


@pytest.mark.parametrize("name", ["Traceparent", "traceparent", "TRACESTATE"])
def test_a_consumer_cannot_set_the_trace(name: str) -> None:
    with pytest.raises(ValidationError):
        limits.headers({name: "00-1-2-03"})
