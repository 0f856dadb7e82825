"""The requests of a soak. Standard library only.

Everything about a request follows from its number and the moment for which it was drawn, so a
repeat has the same bytes under the same idempotency key. The moment travels with the message, so
that whoever gets it knows how long it took: seconds of the machine's monotonic clock, which all
processes share.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

READERS, AUTHORS = 8, 8
APPKEY = "soak"
# The first reader sees every post; the load's reader asks for this timeline every other time.
WATCHED = 0
_ID = re.compile(rb'"ids?":\s*\[?\s*"(\d+)"|<string>(\d{6,})</string>')
_POST = re.compile(rb'"data":"(\d+) (\d+\.\d+) (\w+)"')
_NEXT = re.compile(rb'"next":"https?://[^/"]+([^"]+)"')


@dataclass(frozen=True, slots=True)
class Call:
    """A request for the moment `due`; `number` is unique within its flow. A read with a `path` is
    for that page of a timeline."""

    number: int
    due: float
    path: str = ""


Head = tuple[str, str, str, bytes]  # method, path, content type, body


def event(call: Call, token: str) -> Head:
    data = {"n": call.number, "due": call.due, "trace": trace(call.number)}
    body = {"event_type": "order.paid", "payload": data, "idempotency_key": f"e-{call.number}"}
    return _json("/api/v1/messages", body)


def sms(call: Call, token: str) -> Head:
    """Every other one by XML-RPC. Each has a text of its own, so that no two share a Submit."""
    text, reference = sms_text(call.number), f"{call.number} {call.due:.6f}"
    key, to = f"s-{call.number}", recipient(call.number)
    if call.number % 2:
        body = (
            "<?xml version='1.0'?><methodCall><methodName>sms.send</methodName><params>"
            f"{_text(token)}{_text(to)}{_text(text)}<param><value><struct>"
            f"{_member('reference', reference)}{_member('idempotency_key', key)}"
            "</struct></value></param></params></methodCall>"
        )
        return "POST", "/rpc/", "text/xml", body.encode()
    return _json(
        "/api/v1/sms", {"to": [to], "text": text, "reference": reference, "idempotency_key": key}
    )


def lead(call: Call, token: str) -> Head:
    extra = {"number": str(call.number), "due": f"{call.due:.6f}", "wish": trace(call.number)}
    body = {"appkey": APPKEY, "name": "王小明", "phone": recipient(call.number), "extra": extra}
    return _json("/api/v1/leads", {**body, "idempotency_key": f"lead-soak-{call.number:08d}"})


def post(call: Call, token: str) -> Head:
    body = {"uid": author(call.number % AUTHORS), "data": post_text(call)}
    return _json("/api/v1/feed/posts", {**body, "idempotency_key": f"p-{call.number}"})


def read(call: Call, token: str) -> Head:
    which = WATCHED if call.number % 2 else call.number // 2 % READERS
    path = call.path or f"/api/v1/feed/timelines/{reader(which)}?limit=50"
    return "GET", path, "application/json", b""


FLOWS: Mapping[str, Callable[[Call, str], Head]] = {
    "notify": event, "sms": sms, "crmsync": lead, "feed": post, "reads": read,
}  # fmt: skip


# -- parts ---------------------------------------------------------------------------------------
def reader(number: int) -> str:
    return f"reader-{number}"


def author(number: int) -> str:
    return f"author-{number}"


def recipient(number: int) -> str:
    return f"138{number % 100_000_000:08d}"


def sms_text(number: int) -> str:
    return f"您的验证码是 {number:07d}"


def post_text(call: Call) -> str:
    return f"{call.number} {call.due:.6f} {trace(call.number)}"


def number_of(text: str) -> int:
    """The number of the post with this text."""
    return int(text.split(maxsplit=1)[0])


def is_right_text(text: str) -> bool:
    """True if the rest of a post's text belongs to its number."""
    return text.split()[2:] == [trace(number_of(text))]


def accepted_id(answer: bytes) -> str:
    """The id of what was accepted; '' when the answer has none, as a fault of XML-RPC."""
    if b"<fault>" in answer or not (match := _ID.search(answer)):
        return ""
    return (match[1] or match[2]).decode()


def posts_of(answer: bytes) -> list[tuple[str, int, float]]:
    """Place in the book, number and moment of each post of a timeline."""
    return [
        ("feed" if text.decode() == trace(int(number)) else "wrong-feed", int(number), float(due))
        for number, due, text in _POST.findall(answer)
    ]


def next_path(answer: bytes) -> str:
    """The path of the page of older posts; '' on the last page."""
    return match[1].decode() if (match := _NEXT.search(answer)) else ""


def trace(number: int) -> str:
    """A part that cannot be compressed, as in real life."""
    return hashlib.blake2b(str(number).encode(), digest_size=48).hexdigest()


def _json(path: str, body: object) -> Head:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return "POST", path, "application/json", text.encode()


def _text(value: str) -> str:
    return f"<param><value><string>{value}</string></value></param>"


def _member(name: str, value: str) -> str:
    return f"<member><name>{name}</name><value><string>{value}</string></value></member>"
