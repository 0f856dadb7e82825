"""Endpoints that take items in: one item, or a batch with a verdict for each.

A flow's view for one item reads its body, adds `idempotency_key`, and returns `answer(verdict)`;
with a `SingleIntake` the usual request is answered without Django (`web/fast_intake.py`). The
flow's view for many items inherits BatchView.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

import msgspec
from django.http import HttpResponse
from rest_framework import serializers, status
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.verdicts import Verdict, judge_each, limit_items
from msgplatform.doors.api.bodies import MAX_BATCH
from msgplatform.doors.api.json import MEDIA_TYPE, decode_item, parse, read_json_body

# Maximum bytes. A web worker holds 256 MiB of bodies, so that several of the largest batches fit.
MAX_BATCH_BYTES = 16 * 1024 * 1024
_RECIPIENTS = "0 for an event that is stored and to which nobody subscribes; else left out"
_ESCAPED = re.compile(r'\\(["\\])')
# Escaped backslashes, a surrogate pair, or (group 1) half of one.
_HEX = r"[\da-fA-F]{2}"
_HALF_CHARACTER = re.compile(
    rf"\\(?:\\(?:\\\\)*|u[dD][89abAB]{_HEX}\\u[dD][c-fC-F]{_HEX}|(u[dD][89a-fA-F]{_HEX}))".encode()
)


class SingleIntake(msgspec.Struct, frozen=True):
    """A POST that takes one item, for the fast intake; the view of `path` defines everything else.

    `body` has an attribute `idempotency_key`. `submit(biz, body, call)` stores the item, and once
    it is durable calls `call(verdict, None)` or `call(None, error)` once, in another thread. For an
    invalid item it raises a PlatformError instead.
    """

    path: str
    body: type[Any]
    submit: Callable[[int, Any, Callable[[Verdict | None, Exception | None], None]], None]


def encode_verdict(verdict: Verdict) -> tuple[int, bytes]:
    """Status and body: 202 for a new item, 200 for a duplicate. Raises Conflict, InvalidInput."""
    verdict.raise_rejected()
    is_new = verdict.outcome == "created"  # 202: it is stored, and will be delivered later
    code = status.HTTP_202_ACCEPTED if is_new else status.HTTP_200_OK
    return code, msgspec.json.encode(verdict.as_dict())


def answer(verdict: Verdict) -> HttpResponse:
    """The response of a view for one item. Raises Conflict, InvalidInput."""
    code, body = encode_verdict(verdict)
    return HttpResponse(body, content_type=MEDIA_TYPE, status=code)


def idempotency_key(request: Request, in_body: str | None) -> str | None:
    """The key of the header Idempotency-Key or of the body. Raises InvalidInput when both are
    sent and differ."""
    # Two different keys are an error of the caller: choosing one would hide the error.
    header: str | None = request.META.get("HTTP_IDEMPOTENCY_KEY")
    if header is None:
        return in_body
    header = unquote_key(header)
    if in_body not in (None, header):
        raise InvalidInput(
            "the header Idempotency-Key and the body's idempotency_key differ; send one of them",
            "idempotency_key",
        )
    return header


def unquote_key(header: str) -> str:
    """The key of a header, which may be a quoted string, as the draft of its specification has it
    (draft-ietf-httpapi-idempotency-key-header, 2.1; RFC 9651, 3.3.3)."""
    if len(header) >= 2 and header[0] == header[-1] == '"':
        return _ESCAPED.sub(r"\1", header[1:-1])
    return header


class BatchView(APIView):
    """POST of `{"messages": [item, …]}`, answered by 200 with a verdict for each, in order.

    A subclass sets the Struct `body`, whose only field is the list of items, and implements `read`
    and `accept`. The whole request is refused if its body cannot be read, is too long or holds too
    many items; any other error rejects only its item.
    """

    body: type[msgspec.Struct]
    results: tuple[type[serializers.Serializer[Any]], str]  # serializer and description
    example: tuple[str, Mapping[str, Any]] | None = None
    max_body_bytes = MAX_BATCH_BYTES

    def read(self, body: Any) -> Any:
        """The item for `accept`, from one decoded body. Raises InvalidInput."""
        return body

    def accept(self, items: list[Any]) -> Sequence[Verdict]:
        """The verdicts of these items, which are durable when it returns; never called for none."""
        raise NotImplementedError

    def as_dict(self, verdict: Verdict) -> dict[str, Any]:
        """A verdict as the answer shows it."""
        return verdict.as_dict()

    def post(self, request: Request) -> Response:
        name, struct = _items_of(self.body)
        content, mark = read_json_body(request, self.max_body_bytes), b""
        try:
            body = parse(content, _raw_items(name))
        except ParseError as error:
            # JavaScript writes half of a surrogate pair when it cuts a text. msgspec refuses it
            # even in items that it keeps raw, and one item would refuse all the others. The
            # function lets other threads run: a pattern alone would hold the lock for 16 MiB.
            mark = secrets.token_hex(8).encode()  # random: no item has it by chance
            content = _HALF_CHARACTER.sub(lambda match: mark if match[1] else match[0], content)
            try:
                body = parse(content, _raw_items(name))
            except (ParseError, InvalidInput):
                raise error from None
        items: list[msgspec.Raw] = getattr(body, name)
        limit_items(items, MAX_BATCH, name)

        def read(raw: msgspec.Raw) -> Any:
            if mark and mark in bytes(raw):
                raise InvalidInput(r"A text in it has half of a character, such as \ud83d alone.")
            return self.read(decode_item(raw, struct))

        verdicts = judge_each(items, read, self.accept)
        return Response({"results": [self.as_dict(verdict) for verdict in verdicts]})


@lru_cache
def _items_of(body: type[msgspec.Struct]) -> tuple[str, type[msgspec.Struct]]:
    """The name of the list in a batch's body, and the Struct of its items."""
    (field,) = msgspec.structs.fields(body)
    list_type, *_meta = get_args(field.type)  # Annotated[list[Item], …]
    (item_struct,) = get_args(list_type)
    return field.name, item_struct


@lru_cache
def _raw_items(name: str) -> type[msgspec.Struct]:
    """Keep items raw and decode them one by one: an invalid item must not refuse the others."""
    fields = [(name, list[msgspec.Raw])]
    return msgspec.defstruct("RawItems", fields, forbid_unknown_fields=True)


# -- schema --------------------------------------------------------------------------------------
class AcceptedSerializer(serializers.Serializer[dict[str, Any]]):
    id = serializers.CharField(help_text="Its id, stable across repeats")
    outcome = serializers.ChoiceField(choices=["created", "duplicate"])
    recipients = serializers.IntegerField(required=False, help_text=_RECIPIENTS)


class VerdictSerializer(serializers.Serializer[dict[str, Any]]):
    """`id` for created and duplicate; code, field and detail for rejected."""

    outcome = serializers.ChoiceField(choices=["created", "duplicate", "rejected"])
    id = serializers.CharField(required=False)
    recipients = serializers.IntegerField(required=False, help_text=_RECIPIENTS)
    code = serializers.ChoiceField(choices=["invalid", "conflict"], required=False)
    field = serializers.CharField(required=False, help_text="What to change")
    detail = serializers.CharField(required=False)


class VerdictsSerializer(serializers.Serializer[dict[str, Any]]):
    results = VerdictSerializer(many=True)
