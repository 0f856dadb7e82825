"""`traceparent` by the examples and the rules of W3C Trace Context, and what is traced."""

import pytest
from pytest_django import Settings

from msgplatform.core.tracing import context
from msgplatform.core.tracing.context import Context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (SAMPLED, True),
        (NOT_SAMPLED, False),
        (f" {SAMPLED} ", True),  # the space around a field's value is no part of it
        (f"00-{TRACE}-{SPAN}-03", True),  # other flags
        (f"00-{TRACE}-{SPAN}-fe", False),
        (f"cc-{TRACE}-{SPAN}-01", True),  # a version of the future
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_context_is_read(text: str, is_sampled: bool) -> None:
    assert context.parse(text) == Context(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        TRACE,
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-01\n00",
        f"{SAMPLED},{SAMPLED}",
        "٠٠-" + SAMPLED[3:],
    ],
)
def test_a_malformed_one_is_none(text: str) -> None:
    assert context.parse(text) is None
    assert context.trace_id_of(text) == ""


def test_a_context_is_written_in_version_00() -> None:
    assert Context(TRACE, SPAN).text == SAMPLED
    assert Context(TRACE, SPAN, is_sampled=False).text == NOT_SAMPLED


@pytest.mark.parametrize(
    ("header", "rate", "is_traced", "parent"),
    [
        (SAMPLED, 0.0, True, Context(TRACE, SPAN)),
        (NOT_SAMPLED, 1.0, False, None),
        ("", 0.0, False, None),
        ("", 1.0, True, None),
        ("malformed", 0.0, False, None),
        ("malformed", 1.0, True, None),
    ],
)
def test_the_caller_decides_or_else_the_rate(
    settings: Settings, header: str, rate: float, is_traced: bool, parent: Context | None
) -> None:
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://collector:4318"
    settings.OTEL_TRACES_SAMPLER_ARG = rate
    with context.of_request(header):
        start = context.begin()
        assert (start is not None) is is_traced
        assert start is None or start.parent == parent
        own = context.begin(f"00-{'a' * 32}-{SPAN}-01")
        assert own
        assert own.parent == Context("a" * 32, SPAN), "a message's own goes before the request's"
    assert (context.begin() is not None) is (rate == 1.0), "the request is over"


@pytest.mark.parametrize("setting", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OUTBOUND"])
def test_off_nothing_is_traced(settings: Settings, setting: str) -> None:
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = "http://collector:4318"
    settings.OTEL_TRACES_SAMPLER_ARG = 1.0
    setattr(settings, setting, "" if setting.startswith("OTEL") else False)
    with context.of_request(SAMPLED):
        assert context.begin() is None
        assert context.log_facts(SAMPLED) == {}
