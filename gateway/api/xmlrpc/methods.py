"""The methods of /rpc/ with their signatures and help texts."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from django.db.utils import DataError, InterfaceError, OperationalError
from rest_framework import exceptions as drf

from gateway.api import requests
from gateway.intake import accept
from gateway.intake.request import MAX_EXPIRE_DAYS, LimitReached
from gateway.messages import incoming, states
from msgplatform.core import errors
from msgplatform.core.connections import RedisError
from msgplatform.core.data import sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.verdicts import judge_each, limit_items
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.bodies import MAX_BATCH
from msgplatform.doors.api.json import decode_item
from msgplatform.doors.api.problems.problem import BodyTooLarge, MissingScope
from msgplatform.messages.filters import number

# The XML-RPC specification extension "Fault Code Interoperability".
NOT_XML: Final = -32700
NO_METHOD: Final = -32601
WRONG_PARAMETERS: Final = -32602
INTERNAL: Final = -32603
# HTTP's status for the same over REST.
INVALID: Final = 400
UNAUTHENTICATED: Final = 401
MISSING_SCOPE: Final = 403
CONFLICT: Final = 409
TOO_LARGE: Final = 413
THROTTLED: Final = 429
UNAVAILABLE: Final = 503
OUTCOME_UNKNOWN: Final = 504


class Fault(Exception):
    """An error whose code and text the caller gets unchanged."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def fault_of(error: Exception) -> Fault | None:
    """The fault that the caller gets for an error; None for an unexpected error."""
    match error:
        case Fault():
            return error
        # Before InvalidInput, its base class: in a batch a limit is one item's fault.
        case LimitReached() | drf.Throttled():
            reason = str(error) if isinstance(error, LimitReached) else "Too many calls"
            seconds = max(1, int(getattr(error, "wait", None) or 1))
            return Fault(THROTTLED, f"{reason}: repeat after {seconds} s.")
        case errors.InvalidInput():
            field = f"{error.field}: " if error.field else ""
            return Fault(INVALID, f"{field}{error}")
        case DataError():
            return fault_of(transactions.refused_value(error))
        case errors.Conflict():
            return Fault(CONFLICT, str(error))
        case MissingScope():
            return Fault(MISSING_SCOPE, str(error.detail))
        case BodyTooLarge():
            return Fault(TOO_LARGE, str(error.detail))
        case drf.ParseError() | drf.UnsupportedMediaType():
            return Fault(NOT_XML, str(error.detail))
        # Before Temporary: the request may be stored, so that its repetition needs its key.
        case errors.OutcomeUnknown():
            return Fault(
                OUTCOME_UNKNOWN,
                "It may or may not have happened: repeat with the same idempotency key.",
            )
        case errors.Temporary() | RedisError() | OperationalError() | InterfaceError():
            return Fault(UNAVAILABLE, "The platform is unavailable: repeat the call later.")
    return None


MULTICALL = "system.multicall"
MAX_CALLS = 100
MAX_INCOMING = 200
MAX_SHOWN = states.MAX_IDS  # messages in the answer of a multicall, which is made in memory
_INTEGERS = frozenset({"priority"})  # fields that are numbers in a REST body
Struct = dict[str, Any]


class Method(msgspec.Struct, frozen=True):
    """A method. Each of `signatures` has the type of the answer, then the types of the parameters.

    A method without `scope` needs no key. `call` is None for the method that the dispatcher
    (`endpoint.py`) carries out itself.
    """

    call: Callable[..., Any] | None
    signatures: list[list[str]]
    help: str
    scope: str = ""


def send(caller: ApiCaller, to: Any, text: Any, options: Any = None) -> Struct:
    if options is None or options == []:  # PHP writes an empty struct as an empty array
        options = {}
    if not isinstance(options, dict):
        raise InvalidInput("give a struct", "options")
    if parameters := {"to", "text"} & set(options):
        raise InvalidInput("it is a parameter of its own", sorted(parameters)[0])
    body = _read({**options, "to": to, "text": text}, requests.Send)
    verdict = accept.accept_one(requests.request(caller.biz_id, body))
    verdict.raise_rejected()
    return verdict.as_dict()


def send_many(caller: ApiCaller, messages: Any) -> list[Struct]:
    if not isinstance(messages, list):
        raise InvalidInput("give an array of structs", "messages")
    limit_items(messages, MAX_BATCH, "messages")
    verdicts = judge_each(
        messages,
        lambda item: requests.request(caller.biz_id, _read(item, requests.Send)),
        accept.accept_many,
    )
    return [verdict.as_dict() for verdict in verdicts]


def query(caller: ApiCaller, ids: Any) -> list[Struct]:
    requested_ids = _read(ids if isinstance(ids, list) else [ids], list[str])
    if not 1 <= len(requested_ids) <= states.MAX_IDS:
        raise InvalidInput(f"give 1 to {states.MAX_IDS} ids", "ids")
    if repeated_ids := [id for id, count in Counter(requested_ids).items() if count > 1]:
        raise InvalidInput(f"{repeated_ids[0]} is given twice", "ids")
    states_by_id = states.states(caller.biz_id, requested_ids)
    answers: list[Struct] = []
    for id in requested_ids:
        if id not in states_by_id:
            answers.append({"id": id, "found": False})
            continue
        fields = msgspec.to_builtins(states_by_id[id])
        # XML-RPC has no null: a time that has not come is an empty string.
        texts = {name: "" if value is None else value for name, value in fields.items()}
        answers.append({"found": True, **texts})
    return answers


def list_incoming(caller: ApiCaller, since_id: Any = "") -> list[Struct]:
    last_id = _read(since_id, str)
    rows = incoming.since(caller.biz_id, number(last_id, "since_id") if last_id else None)
    page = sql.first(rows.order_by(*incoming.ORDER), MAX_INCOMING)
    return [msgspec.to_builtins(message) for message in incoming.describe(page)]


def count_messages(call: Any) -> int:
    """The number of messages that the answer to this call of a multicall may have."""
    match call:
        case {"methodName": "sms.query", "params": [_, list(ids)]}:
            return len(ids)
        case {"methodName": "sms.query"}:
            return 1
        case {"methodName": "sms.incoming"}:
            return MAX_INCOMING
    return 0


def find_method(name: Any) -> Method:
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        raise Fault(NO_METHOD, "There is no such method: see system.listMethods.")
    return method


_OPTIONS = (
    "account, extension (digits behind its SP number), priority (0 to 9), schedule_at and "
    "expire_at (ISO 8601 with a zone, or dateTime in UTC; it expires at most "
    f"{MAX_EXPIRE_DAYS} days from now or from schedule_at), reference, idempotency_key"
)
METHODS: Mapping[str, Method] = {
    "sms.send": Method(
        send,
        [
            ["struct", "string", recipient_type, "string", *options_type]
            for recipient_type in ("string", "array")
            for options_type in ([], ["struct"])
        ],
        "sms.send(key, to, text, options): sends one text to one recipient or to an array of them. "
        f"Options: {_OPTIONS}. Answers {{outcome: created or duplicate, ids: one string for each "
        "recipient, in order}.",
        "sms:write",
    ),
    "sms.send_many": Method(
        send_many,
        [["array", "string", "array"]],
        "sms.send_many(key, messages): up to 1000 structs {to, text, and the options of sms.send}. "
        "Answers a struct for each, in order: {outcome, ids}, or {outcome: rejected, code, field, "
        "detail}.",
        "sms:write",
    ),
    "sms.query": Method(
        query,
        [["array", "string", "array"], ["array", "string", "string"]],
        "sms.query(key, ids): up to 1000 ids, each once. Answers a struct for each, in order: {id, "
        "found, state, to, reference, error_code, error, accepted_at, submitted_at, reported_at, "
        "…}; found is false for one that is not yours.",
        "sms:read",
    ),
    "sms.incoming": Method(
        list_incoming,
        [["array", "string"], ["array", "string", "string"]],
        f"sms.incoming(key, since_id): up to {MAX_INCOMING} messages from handsets that came "
        "after this one, oldest first; without since_id, or with an empty one, from the oldest "
        "on. Answers structs {id, from, to, account, text, parts, missing_parts, received_at}. To "
        "follow them, call it again with the last id; an empty array means that nothing new came.",
        "sms:read",
    ),
    "system.listMethods": Method(lambda: sorted(METHODS), [["array"]], "The names of all methods."),
    "system.methodHelp": Method(
        lambda name: find_method(name).help,
        [["string", "string"]],
        "system.methodHelp(name): what a method does.",
    ),
    "system.methodSignature": Method(
        lambda name: find_method(name).signatures,
        [["array", "string"]],
        "system.methodSignature(name): the types of the answer and the parameters.",
    ),
    MULTICALL: Method(
        None,
        [["array", "array"]],
        f"system.multicall(calls): up to {MAX_CALLS} structs {{methodName, params}} at once. "
        f"Together they may ask for {MAX_SHOWN} messages: sms.query for one with each id, "
        f"sms.incoming for {MAX_INCOMING}. "
        "Answers for each, in order: an array of one value, or a struct {faultCode, faultString}.",
    ),
}


def _read(value: Any, struct: Any) -> Any:
    """A value of XML-RPC, read and checked as in REST. Raises InvalidInput naming the field."""
    try:
        as_json = msgspec.json.encode(_with_integers_as_text(value))
    except (TypeError, ValueError, OverflowError):  # base64, an integer of a hundred digits
        raise InvalidInput("use strings, integers, arrays, structs and dateTime") from None
    return decode_item(msgspec.Raw(as_json), struct)


def _with_integers_as_text(value: Any) -> Any:
    """The value with integers as text, except the fields in _INTEGERS: PHP sends digits, such as a
    telephone number, as an integer."""
    match value:
        case bool():  # a bool is an int, too
            return value
        case int():
            return str(value)
        case list():
            return [_with_integers_as_text(item) for item in value]
        case dict():
            return {
                name: item if name in _INTEGERS else _with_integers_as_text(item)
                for name, item in value.items()
            }
    return value
