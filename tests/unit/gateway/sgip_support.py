"""Strategies and frames that the tests of SGIP share."""

import os
from typing import Any

from hypothesis import settings, strategies as st

from gateway.sgip import (
    Bind,
    BindResp,
    Command,
    Deliver,
    DeliverResp,
    Report,
    ReportResp,
    Submit,
    SubmitResp,
    Trace,
    TraceHop,
    TraceResp,
    Unbind,
    UnbindResp,
    UserRpt,
    UserRptResp,
)

# Where a branch must be reached by an example that a test names, not by chance.
settings.register_profile("few", max_examples=5, derandomize=True, deadline=None)
if os.environ.get("HYPOTHESIS_FEW"):
    settings.load_profile("few")

WORD = st.integers(0, 2**32 - 1)
SEQUENCE = st.tuples(WORD, WORD, WORD)
BYTE = st.integers(0, 255)
RESERVE = st.binary(min_size=8, max_size=8)


def text(width: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=width)


NUMBER = text(21)
SUBMIT = st.builds(
    Submit,
    SEQUENCE,
    NUMBER,
    NUMBER,
    st.lists(NUMBER, min_size=1, max_size=100).map(tuple),
    text(5),
    text(10),
    BYTE,
    text(6),
    text(6),
    BYTE,
    BYTE,
    BYTE,
    text(16),
    text(16),
    BYTE,
    BYTE,
    BYTE,
    BYTE,
    BYTE,
    st.binary(max_size=200),
    RESERVE,
)
DELIVER = st.builds(
    Deliver, SEQUENCE, NUMBER, NUMBER, BYTE, BYTE, BYTE, st.binary(max_size=200), RESERVE
)
REPORT = st.builds(Report, SEQUENCE, SEQUENCE, BYTE, NUMBER, BYTE, BYTE, RESERVE)
HOP = st.builds(TraceHop, BYTE, text(6), text(16), text(16), RESERVE)
COMMAND: st.SearchStrategy[Command] = st.one_of(
    SUBMIT,
    DELIVER,
    REPORT,
    st.builds(Bind, SEQUENCE, BYTE, text(16), text(16), RESERVE),
    st.builds(Unbind, SEQUENCE),
    st.builds(UnbindResp, SEQUENCE),
    st.builds(UserRpt, SEQUENCE, NUMBER, NUMBER, BYTE, RESERVE),
    st.builds(Trace, SEQUENCE, SEQUENCE, NUMBER, RESERVE),
    st.builds(TraceResp, SEQUENCE, st.lists(HOP, max_size=86).map(tuple)),
    *(
        st.builds(response, SEQUENCE, BYTE, RESERVE)
        for response in (BindResp, SubmitResp, DeliverResp, ReportResp, UserRptResp)
    ),
)

NODE, TIME = 3010099999, 1120203225


def submit(counter: int = 1, content: bytes = b"hello", users: tuple[str, ...] = ()) -> Submit:
    return Submit(
        (NODE, TIME, counter),
        "10690001",
        "0" * 21,
        users or ("8613012345678",),
        "99999",
        "TEST",
        message_content=content,
    )


def deliver(counter: int = 1, content: bytes = b"MO hello", **fields: Any) -> Deliver:
    return Deliver(
        (3010000001, TIME, counter), "8613012345678", "10690001", message_content=content, **fields
    )


def report(counter: int = 1, of: int = 1) -> Report:
    return Report((3010000001, TIME, counter), (NODE, TIME, of), 0, "8613012345678", 0, 0)


# One of each.
COMMANDS: list[Command] = [
    submit(),
    deliver(),
    report(),
    Bind((1, 2, 3), 1, "name", "password"),
    Unbind((1, 2, 3)),
    UnbindResp((1, 2, 3)),
    UserRpt((1, 2, 3), "10690001", "8613012345678", 1),
    Trace((1, 2, 3), (NODE, TIME, 1), "8613012345678"),
    TraceResp((1, 2, 3), (TraceHop(0, "101010", "261120203225", "261120203226"),)),
    *(kind((1, 2, 3), 0) for kind in (BindResp, SubmitResp, DeliverResp, ReportResp, UserRptResp)),
]
