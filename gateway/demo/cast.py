"""The demo's cast: two business systems, three gateways that behave differently, what is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.models import SmsAccount, SmsGateway
from msgplatform.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive


@dataclass(frozen=True)
class Operator:
    """A gateway: the numbers that it takes, how its simulator behaves, how messages end there."""

    name: str
    description: str
    personality: str
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
        "island", "knows none of its users", "failing", "132", 3010012303, "failed",
        row={"speed_limit": 2000.0, "window": 8},
    ),
)  # fmt: skip
# System → its SP number; the second takes an MO by keyword on the first one's number too.
SYSTEMS = {"clinic": "10655001", "bank": "10655002"}
KEYWORD = "BANK"
CORP = "12345"
# Of ten recipients; the rest goes to the first operator.
_SHARES = (0, 0, 0, 0, 0, 0, 1, 1, 1, 2)


def number(index: int) -> str:
    """A recipient of its own for each index, of one of the operators."""
    operator = OPERATORS[_SHARES[index % len(_SHARES)]]
    return f"{operator.prefix}{index:08d}"


def ending(recipient: str) -> str:
    """How a message to this number ends."""
    return next(o.state for o in OPERATORS if recipient.startswith(o.prefix))


def text(index: int) -> str:
    """Of every kind: Chinese, emoji, plain, long in parts."""
    kinds = (
        f"您的验证码是 {index:06d}，请勿告诉他人。",
        f"Your appointment {index} is tomorrow at 9:30",
        f"快递已到 📦 取件码 {index} 😀",
        f"【通知】第 {index} 号：" + "请带好您的身份证和医保卡，提前十五分钟到达。" * 8,
        f"Order {index}: " + "thank you for shopping with us. " * 9,
    )
    return kinds[index % len(kinds)]


def create(sink_urls: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
    """Rows for gateways, systems, accounts and subscriptions; an API key for each system."""
    for operator in OPERATORS:
        SmsGateway.objects.update_or_create(
            name=operator.name,
            defaults={
                "host": "127.0.0.1", "port": ports[operator.name], "login_name": "sp",
                "login_password": "secret", "smg_login_name": operator.name,
                "smg_login_password": "secret", "corp_id": CORP, "node_id": operator.node_id,
                "prefixes": [operator.prefix], **operator.row,
            },
        )  # fmt: skip
    tokens = {}
    for name, sp_number in SYSTEMS.items():
        biz, _ = Biz.objects.get_or_create(name=name, defaults={"title": name.title()})
        _, tokens[name] = keys.create(biz, "demo", ["sms:write", "sms:read"])
        SmsAccount.objects.update_or_create(
            name=name,
            defaults={
                "biz": biz, "sp_number": sp_number, "corp_id": CORP, "is_default": True,
                "extension_digits": 2,
            },
        )  # fmt: skip
        receive, _ = Receive.objects.update_or_create(
            name=f"{name}-listener", defaults={"url": sink_urls[name]}
        )
        BizReceive.objects.update_or_create(
            biz=biz, receive=receive, defaults={"event_types": ["sms.report", "sms.mo"]}
        )
    # A second account of the bank on the clinic's number: the first word of an MO says whose it is.
    SmsAccount.objects.update_or_create(
        name="bank-shared",
        defaults={
            "biz": Biz.objects.get(name="bank"), "sp_number": SYSTEMS["clinic"], "corp_id": CORP,
            "keywords": [KEYWORD],
        },
    )  # fmt: skip
    return tokens


def mos(count: int) -> list[tuple[str, str, str, str]]:
    """(whose it is, user, SP number, text) of texts that users send; each text once."""
    made = []
    for index in range(count):
        user = f"138{index:08d}"
        kind = index % 4
        # Four ways to an owner: its number, with an extension, by keyword, in parts.
        if kind == 0:
            made.append(("clinic", user, SYSTEMS["clinic"], f"TD {index}"))
        elif kind == 1:
            made.append(("bank", user, SYSTEMS["bank"] + "07", f"查询余额 {index} 😀"))
        elif kind == 2:
            made.append(("bank", user, SYSTEMS["clinic"], f"{KEYWORD.lower()} {index}"))
        else:
            long = f"第 {index} 号：" + "我想改一下预约的时间，请问明天上午还有没有位置？" * 6
            made.append(("clinic", user, SYSTEMS["clinic"] + "1", long))
    return made
