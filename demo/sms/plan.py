"""The operators, the business systems and their rows, and all texts: the same in each run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive


@dataclass(frozen=True)
class Operator:
    """An operator and its gateway.

    The gateway takes numbers that begin with `prefix`; messages to them end in `state`. `changes`
    are options of the simulator beyond its `behaviour`. `row` are more columns of the gateway.
    """

    name: str
    description: str
    behaviour: str
    prefix: str
    node_id: int
    state: str = "delivered"
    changes: Sequence[str] = ()
    row: Mapping[str, Any] = field(default_factory=dict)


OPERATORS = (
    Operator("city", "answers at once", "happy", "138", 3010012301),
    Operator(
        "province", "sends each Report twice, some before the response", "duplicating", "139",
        3010012302, changes=["reports=before", "response_delay=0.02"],
    ),
    Operator(
        "fails-all", "fails every message on purpose: unknown user", "failing", "132", 3010012303,
        "failed", row={"speed_limit": 2000.0, "window": 8},
    ),
)  # fmt: skip
# System → its SP number.
SYSTEMS = {"clinic": "10655001", "bank": "10655002"}
# An MO to the clinic's number that begins with this word is the bank's.
_KEYWORD = "BANK"
_CORP = "12345"
# The operators (places in OPERATORS) of every ten recipients.
_SHARES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 2)


def create(sink_urls: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
    """Create gateways, systems, accounts and subscriptions; returns an API key for each system."""
    for operator in OPERATORS:
        SmsGateway.objects.create(
            name=operator.name, host="127.0.0.1", port=ports[operator.name], login_name="sp",
            login_password="secret", smg_login_name=operator.name,  # noqa: S106 - a simulator's
            smg_login_password="secret", corp_id=_CORP, node_id=operator.node_id,  # noqa: S106
            prefixes=[operator.prefix], **operator.row,
        )  # fmt: skip
    tokens = {}
    for name, sp_number in SYSTEMS.items():
        biz = Biz.objects.create(name=name, title=name.title())
        tokens[name] = keys.create(biz, "demo", ["sms:write", "sms:read"])[1]
        SmsAccount.objects.create(
            name=name, biz=biz, sp_number=sp_number, corp_id=_CORP, is_default=True,
            extension_digits=2,
        )  # fmt: skip
        receive = Receive.objects.create(name=f"{name}-listener", url=sink_urls[name])
        BizReceive.objects.create(biz=biz, receive=receive, event_types=["sms.report", "sms.mo"])
    # A second account of the bank, on the clinic's number: it gets the MOs with its keyword.
    SmsAccount.objects.create(
        name="bank-shared", biz=Biz.objects.get(name="bank"), sp_number=SYSTEMS["clinic"],
        corp_id=_CORP, keywords=[_KEYWORD],
    )  # fmt: skip
    return tokens


def number(index: int) -> str:
    """The recipient's number for an index; no two indexes have the same."""
    operator = OPERATORS[_SHARES[index % len(_SHARES)]]
    return f"{operator.prefix}{index:08d}"


def ending(recipient: str) -> str:
    """The state in which a message to this number ends."""
    return next(o.state for o in OPERATORS if recipient.startswith(o.prefix))


def text(index: int) -> str:
    """The text for an index, by turns: Chinese, English, with emoji, and long enough for parts."""
    kinds = (
        f"您的验证码是 {index:06d}，请勿告诉他人。",
        f"Your appointment {index} is tomorrow at 9:30",
        f"快递已到 📦 取件码 {index} 😀",
        f"【通知】第 {index} 号：" + "请带好您的身份证和医保卡，提前十五分钟到达。" * 8,
        f"Order {index}: " + "thank you for shopping with us. " * 9,
    )
    return kinds[index % len(kinds)]


def mos(count: int) -> list[tuple[str, str, str, str]]:
    """The users' messages: (system that must get it, user, SP number, text).

    Each text is another, so that a missing or second one is noticed.
    """
    messages = []
    for index in range(count):
        user = f"138{index:08d}"  # of the first operator, whose simulator sends them all
        kind = index % 4
        # The system is found by its number, by its number with an extension, by a keyword, and by
        # its number with an extension for a long text, which comes in parts.
        if kind == 0:
            messages.append(("clinic", user, SYSTEMS["clinic"], f"TD {index}"))
        elif kind == 1:
            messages.append(("bank", user, SYSTEMS["bank"] + "07", f"查询余额 {index} 😀"))
        elif kind == 2:
            messages.append(("bank", user, SYSTEMS["clinic"], f"{_KEYWORD.lower()} {index}"))
        else:
            long = f"第 {index} 号：" + "我想改一下预约的时间，请问明天上午还有没有位置？" * 6
            messages.append(("clinic", user, SYSTEMS["clinic"] + "1", long))
    return messages
