"""SGIP's numbers and what they mean, for forms, lists and pages."""

from collections.abc import Sequence

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy as _

from gateway import sgip
from gateway.sgip.constants import Coding, FeeType, MoreLateToMt, ReportFlag, State, UserCondition

Choices = Sequence[tuple[int, str | Promise]]

FEE_TYPES: Choices = [
    (FeeType.NO_INFORMATION_FEE, _("0: no information fee")),
    (FeeType.FREE, _("1: free")),
    (FeeType.PER_MESSAGE, _("2: per message")),
    (FeeType.MONTHLY, _("3: monthly")),
    (FeeType.BY_SP, _("4: charged by the SP")),
]
AGENT_FLAGS: Choices = [(0, _("0: receivable")), (1, _("1: collected"))]
MT_FLAGS: Choices = [
    (MoreLateToMt.FIRST_AFTER_MO, _("0: the first that an MO caused")),
    (MoreLateToMt.LATER_AFTER_MO, _("1: a later one that an MO caused")),
    (MoreLateToMt.NOT_AFTER_MO, _("2: not caused by an MO")),
    (MoreLateToMt.SYSTEM, _("3: the system's own answer")),
]
# 3 is missing: it charges a monthly fee and sends no message to the user.
REPORT_FLAGS: Choices = [
    (ReportFlag.ON_FAILURE, _("0: on failure")),
    (ReportFlag.ALWAYS, _("1: always")),
    (ReportFlag.NEVER, _("2: never")),
]
CODINGS: Choices = [
    (Coding.ASCII, _("0: ASCII")),
    (Coding.SIM, _("3: for the SIM card")),
    (Coding.BINARY, _("4: binary")),
    (Coding.UCS2, _("8: UCS-2")),
    (Coding.GBK, _("15: GBK")),
]
STATES: Choices = [
    (State.DELIVERED, _("delivered")),
    (State.WAITING, _("waiting")),
    (State.FAILED, _("failed")),
]
CONDITIONS: Choices = [
    (UserCondition.DEREGISTERED, _("deregistered")),
    (UserCondition.SUSPENDED, _("suspended")),
    (UserCondition.NORMAL, _("back to normal")),
]


def meaning(choices: Choices, number: int) -> str:
    """The meaning of a number; the number itself if the specification does not have it."""
    return str(dict(choices).get(number, number))


def meaning_of_result(code: int) -> str:
    """The meaning of a Result or ErrorCode, in the reader's language."""
    # For a code that the specification does not have, the text is the number.
    text = sgip.result_text(code)
    return gettext(text) if text != str(code) else gettext("a code of the gateway's own")


def with_meaning(code: int) -> str:
    """A Result or ErrorCode with its meaning, '' for none."""
    return f"{code} {meaning_of_result(code)}" if code else ""
