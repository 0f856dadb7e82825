"""XML-RPC at /rpc/ for any stock client: the same intake, scopes and limits as REST.

The API key is the first parameter of every method. Every error is a fault with a stable code
(`methods.py`) and a sentence; the HTTP status is 200, as XML-RPC has it. The bytes are read with
bounds on depth, without DTD and entities.
"""

import re
import secrets
import xmlrpc.client
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.xmlrpc import DefusedExpatParser  # type: ignore[import-untyped]
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import Throttled

from gateway.api.xmlrpc import methods
from gateway.api.xmlrpc.methods import MAX_CALLS, MAX_SHOWN, count_messages, find_method
from msgplatform.core import logging
from msgplatform.core.errors import InvalidInput
from msgplatform.core.json.values import map_leaves
from msgplatform.doors.api.access.authentication import find_caller
from msgplatform.doors.api.access.throttling import ApiKeyThrottle
from msgplatform.doors.api.json import read_body
from msgplatform.doors.api.problems.problem import MissingScope

log = logging.get(__name__)

MAX_BODY_BYTES = 1024 * 1024
# A level of arrays or structs takes three or four elements; no method takes more than two levels.
MAX_DEPTH = 24
# Characters that XML 1.0 cannot carry (§2.2), but that the library writes. A handset may send them.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# The key is in the body, not in a cookie: a browser adds nothing that could be forged.
@csrf_exempt
def endpoint(request: HttpRequest, key_prefix: str = "") -> HttpResponse:
    """Answers a methodCall; another HTTP method gets a page that says how to call. Only a proxy in
    front of cells reads `key_prefix`."""
    if request.method != "POST":
        text = _(
            "This is the XML-RPC address of the SMS gateway: send a POST.\n\n"
            "In Python:\n\n"
            "    import xmlrpc.client\n"
            '    sms = xmlrpc.client.ServerProxy("%(url)s").sms\n'
            '    sms.send("mp_… (your API key)", ["13800000000"], "Hello",\n'
            '             {"idempotency_key": "order-7-code"})\n\n'
            "system.listMethods names the methods, system.methodHelp explains one.\n"
        ) % {"url": request.build_absolute_uri("/rpc/")}
        return HttpResponse(
            text, status=405, content_type="text/plain; charset=utf-8", headers={"Allow": "POST"}
        )
    try:
        name, parameters = _read_call(read_body(request, MAX_BODY_BYTES))
        result = _dispatch(request, name, parameters)
        value: Any = (map_leaves(result, str, lambda text: _FORBIDDEN.sub("\ufffd", text)),)
        answer = xmlrpc.client.dumps(value, methodresponse=True)
    except Exception as error:  # noqa: BLE001 - a fault with an error_id
        fault = _fault(error)
        value = xmlrpc.client.Fault(fault.code, fault.text)
        answer = xmlrpc.client.dumps(value, methodresponse=True)
    # A parser reads a bare carriage return as a line feed (XML 1.0, 2.11).
    answer = answer.replace("\r", "&#13;")
    return HttpResponse(answer, content_type="text/xml; charset=utf-8")


def _dispatch(request: HttpRequest, name: str, parameters: list[Any]) -> Any:
    method = find_method(name)
    count = len(parameters)
    if count + 1 not in {len(signature) for signature in method.signatures}:
        raise methods.Fault(methods.WRONG_PARAMETERS, f"Call it so: {method.help}")
    if method.call is None:  # system.multicall: each call on its own; a failed one answers a fault
        (calls,) = parameters
        if not isinstance(calls, list) or not 1 <= len(calls) <= MAX_CALLS:
            raise InvalidInput(f"give an array of 1 to {MAX_CALLS} structs", "calls")
        if sum(map(count_messages, calls)) > MAX_SHOWN:
            raise InvalidInput(f"ask for at most {MAX_SHOWN} messages at once", "calls")
        return [_answer_call(request, call) for call in calls]
    if not method.scope:
        return method.call(*parameters)
    key, *arguments = parameters
    caller = find_caller(request, str(key))
    if caller is None:
        raise methods.Fault(
            methods.UNAUTHENTICATED, "The first parameter must be a valid API key: mp_…"
        )
    throttle = ApiKeyThrottle()
    # A reading call counts as reading, although every XML-RPC call is a POST.
    http_method = "GET" if method.scope.endswith(":read") else "POST"
    throttled_request = SimpleNamespace(method=http_method, user=caller, META=request.META)
    if not throttle.allow_request(cast(Any, throttled_request), cast(Any, None)):
        raise Throttled(throttle.wait())
    # The scope is checked after the throttle, so that a refused call counts, too.
    if method.scope not in caller.scopes:
        raise MissingScope(method.scope)
    return method.call(caller, *arguments)


def _answer_call(request: HttpRequest, call: Any) -> Any:
    try:
        match call:
            case {"methodName": "system.multicall"}:
                raise InvalidInput("it cannot call itself", "methodName")
            case {"methodName": str(name), "params": list(parameters)}:
                return [_dispatch(request, name, parameters)]
        raise InvalidInput("give structs {methodName, params}", "calls")
    except Exception as error:  # noqa: BLE001 - a fault with an error_id
        fault = _fault(error)
        return {"faultCode": fault.code, "faultString": fault.text}


def _fault(error: Exception) -> methods.Fault:
    """The fault of an error; an unexpected error is logged, and its fault has an id for the log."""
    fault = methods.fault_of(error)
    if fault is not None:
        return fault
    error_id = secrets.token_hex(8)
    log.exception("rpc_failed", error_id=error_id)
    return methods.Fault(methods.INTERNAL, f"Something broke on our side: error_id {error_id}.")


# -- bytes ----------------------------------------------------------------------------------------
class _Unmarshaller(xmlrpc.client.Unmarshaller):
    def __init__(self) -> None:
        super().__init__(use_datetime=True)
        self._depth = 0

    # Called by the parser for each element, so that a body that is too deep is not read to its end.
    def start(self, tag: str, attrs: Any) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} elements deep")
        super().start(tag, attrs)

    def end(self, tag: str) -> None:
        self._depth -= 1
        super().end(tag)


def _read_call(body: bytes) -> tuple[str, list[Any]]:
    """The method's name and its parameters; times are aware. Raises Fault."""
    target = _Unmarshaller()
    parser = DefusedExpatParser(target, forbid_dtd=True)
    try:
        parser.feed(body)
        parser.close()
        parameters: Any = target.close()
        name = target.getmethodname()
    except DefusedXmlException:
        raise methods.Fault(methods.NOT_XML, "DTDs and entities are not read here.") from None
    except Exception as error:  # noqa: BLE001 - the library raises what it likes
        why = str(error) or type(error).__name__
        raise methods.Fault(methods.NOT_XML, f"This is no XML-RPC call: {why[:200]}") from None
    if not name:
        raise methods.Fault(methods.NOT_XML, "This is no XML-RPC call: it names no method.")
    # Times of XML-RPC have no zone and mean UTC here.
    return name, map_leaves(
        parameters, datetime, lambda at: at if at.tzinfo else at.replace(tzinfo=UTC)
    )


# Both spellings, because a POST without the slash cannot be redirected. A proxy in front of cells
# does not read the body with the key: it reads the public prefix of the key in the address.
urlpatterns = [
    path("rpc/", endpoint, name="rpc"),
    path("rpc", endpoint),
    path("rpc/<slug:key_prefix>/", endpoint, name="rpc-in-cell"),
    path("rpc/<slug:key_prefix>", endpoint),
]
