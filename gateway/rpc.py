"""XML-RPC at /rpc/ for any stock client: the same intake, scopes and limits as REST.

The API key is the first parameter of every method. Whatever is wrong is a fault with a stable code
(`faults.py`) and a sentence; the HTTP status is 200, as XML-RPC has it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import Throttled

from gateway import bodies, faults, query, rpc_format
from msgplatform.api import keys
from msgplatform.api.json import decode_item, read_body
from msgplatform.api.key_cache import ApiCaller
from msgplatform.api.problems import MissingScope
from msgplatform.api.throttling import ApiKeyThrottle, count_failure, refuse_guesser
from msgplatform.core import logging
from msgplatform.core.errors import Conflict, InvalidInput

log = logging.get(__name__)

MAX_BODY_BYTES = 1024 * 1024
Struct = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """`signatures` as system.methodSignature gives them: the type of the answer, then of each
    parameter. A method without a scope needs no key."""

    call: Callable[..., Any]
    signatures: list[list[str]]
    help: str
    scope: str = ""


# -- the methods ---------------------------------------------------------------------------------
def _send(caller: ApiCaller, to: Any, text: Any, options: Any = None) -> Struct:
    body = _read({**_options(options), "to": to, "text": text}, bodies.Send)
    (verdict,) = bodies.accept([bodies.request(caller.biz_id, body)])
    if verdict.code == "conflict":
        raise Conflict(verdict.reason)
    if verdict.outcome == "rejected":
        raise InvalidInput(verdict.reason, verdict.field)
    return bodies.shown(verdict)


def _send_many(caller: ApiCaller, messages: Any) -> list[Struct]:
    if not isinstance(messages, list):
        raise InvalidInput("give an array of structs", "messages")
    return bodies.send_all(caller.biz_id, messages, _read)


def _query(caller: ApiCaller, ids: Any) -> list[Struct]:
    wanted = _read([ids] if isinstance(ids, str) else ids, list[str])
    if not 1 <= len(wanted) <= query.MOST:
        raise InvalidInput(f"give 1 to {query.MOST} ids", "ids")
    found = query.states(caller.biz_id, wanted)
    return [_state(id, found.get(id)) for id in wanted]


def _state(id: str, state: query.State | None) -> Struct:
    """XML-RPC has no null: a time that never came is an empty string."""
    if state is None:
        return {"id": id, "found": False}
    fields = msgspec.to_builtins(state)
    return {"found": True, **{k: "" if v is None else v for k, v in fields.items()}}


def _list_methods() -> list[str]:
    return sorted(METHODS)


def _method_help(name: Any) -> str:
    return _named(name).help


def _method_signature(name: Any) -> list[list[str]]:
    return _named(name).signatures


def _named(name: Any) -> Method:
    found = METHODS.get(name) if isinstance(name, str) else None
    if found is None:
        raise faults.Fault(faults.NO_METHOD, "There is no such method: see system.listMethods.")
    return found


_OPTIONS = (
    "account, extension (digits behind its SP number), priority (0 to 9), schedule_at and "
    "expire_at (ISO 8601 with a zone, or dateTime in UTC), reference, idempotency_key"
)
METHODS: Mapping[str, Method] = {
    "sms.send": Method(
        _send,
        [
            ["struct", "string", kind, "string", *more]
            for kind in ("string", "array")
            for more in ([], ["struct"])
        ],
        "sms.send(key, to, text, options): sends one text to one recipient or to an array of them. "
        f"Options: {_OPTIONS}. Answers {{outcome: created or duplicate, ids: one string for each "
        "recipient, in order}.",
        "sms:write",
    ),
    "sms.send_many": Method(
        _send_many,
        [["array", "string", "array"]],
        "sms.send_many(key, messages): up to 1000 structs {to, text, and the options of sms.send}. "
        "Answers a struct for each, in order: {outcome, ids}, or {outcome: rejected, code, field, "
        "detail}.",
        "sms:write",
    ),
    "sms.query": Method(
        _query,
        [["array", "string", "array"], ["array", "string", "string"]],
        "sms.query(key, ids): up to 1000 ids. Answers a struct for each, in order: {id, found, "
        "state, to, reference, error_code, error, accepted_at, submitted_at, reported_at, …}; "
        "found is false for one that is not yours.",
        "sms:read",
    ),
    "system.listMethods": Method(_list_methods, [["array"]], "The names of all methods."),
    "system.methodHelp": Method(
        _method_help, [["string", "string"]], "system.methodHelp(name): what a method does."
    ),
    "system.methodSignature": Method(
        _method_signature,
        [["array", "string"]],
        "system.methodSignature(name): the types of the answer and the parameters.",
    ),
}


# -- one request ---------------------------------------------------------------------------------
@csrf_exempt
def endpoint(request: HttpRequest) -> HttpResponse:
    """Answers a methodCall; another HTTP method gets a page that says how to call."""
    if request.method != "POST":
        return _usage(request)
    try:
        name, parameters = rpc_format.read_call(read_body(request, MAX_BODY_BYTES))
        answer = rpc_format.answer(_dispatch(request, name, parameters))
    except Exception as error:  # noqa: BLE001 - a fault with an error_id
        answer = rpc_format.fault(_fault(error))
    return HttpResponse(answer, content_type="text/xml; charset=utf-8")


def _dispatch(request: HttpRequest, name: str, parameters: list[Any]) -> Any:
    method = _named(name)
    given = len(parameters)
    if given + 1 not in {len(signature) for signature in method.signatures}:
        raise faults.Fault(faults.WRONG_PARAMETERS, f"Call it so: {method.help}")
    if not method.scope:
        return method.call(*parameters)
    key, *rest = parameters
    return method.call(_admitted(request, key, method.scope), *rest)


def _admitted(request: HttpRequest, key: Any, scope: str) -> ApiCaller:
    """Whose key this is. Raises Fault, MissingScope, Throttled."""
    api = cast(Any, request)  # the throttle looks at META alone
    caller = keys.verify(str(key).strip(), admit=partial(refuse_guesser, api))
    if caller is None:
        count_failure(api)
        raise faults.Fault(
            faults.UNAUTHENTICATED, "The first parameter must be a valid API key: mp_…"
        )
    throttle = ApiKeyThrottle()
    # What the key reads counts as reading, though every XML-RPC call is a POST.
    asked = SimpleNamespace(method="GET" if scope.endswith(":read") else "POST")
    if not throttle.allow_request(
        cast(Any, SimpleNamespace(_request=asked, user=caller)), cast(Any, None)
    ):
        raise Throttled(throttle.wait())
    if scope not in caller.scopes:
        raise MissingScope(scope)
    return caller


def _fault(error: Exception) -> faults.Fault:
    found = faults.of(error)
    if found is not None:
        return found
    error_id = secrets.token_hex(8)
    log.exception("rpc_failed", error_id=error_id)
    return faults.Fault(faults.INTERNAL, f"Something broke on our side: error_id {error_id}.")


def _usage(request: HttpRequest) -> HttpResponse:
    url = request.build_absolute_uri("/rpc/")
    text = _(
        "This is the XML-RPC address of the SMS gateway: send a POST.\n\n"
        "In Python:\n\n"
        "    import xmlrpc.client\n"
        '    sms = xmlrpc.client.ServerProxy("%(url)s").sms\n'
        '    sms.send("mp_… (your API key)", ["13800000000"], "Hello", {"reference": "7"})\n\n'
        "system.listMethods names the methods, system.methodHelp explains one.\n"
    ) % {"url": url}
    return HttpResponse(
        text, status=405, content_type="text/plain; charset=utf-8", headers={"Allow": "POST"}
    )


def _options(given: Any) -> Struct:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidInput("give a struct", "options")
    if taken := {"to", "text"} & set(given):
        raise InvalidInput("it is a parameter of its own", sorted(taken)[0])
    return given


def _read(value: Any, type: Any) -> Any:
    """XML-RPC's values as REST's body would have them. Raises InvalidInput naming the field."""
    try:
        as_json = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):  # base64, an integer of a hundred digits
        raise InvalidInput("use strings, integers, arrays, structs and dateTime") from None
    return decode_item(msgspec.Raw(as_json), type)
