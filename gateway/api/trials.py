"""A test SMS: one text to one number, through the usual intake; and over the management API."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from django.http import Http404
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from gateway.intake.accept import accept
from gateway.intake.request import MAX_TEXT, Request as SmsRequest
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, NotNow, OutcomeUnknown
from msgplatform.core.intake.idempotency import check_key
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import text
from msgplatform.doors.api.intake import idempotency_key
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import audit, own_rows
from msgplatform.doors.api.schema import operation
from msgplatform.models import AuditLog

_BODY_BYTES = 16_384
_REFERENCE = "test over the API"


def send(
    account: SmsAccount, gateway: SmsGateway | None, number: str, content: str, reference: str,
    write_audit: Callable[..., object], key: str = "",
) -> str:  # fmt: skip
    """Send a test SMS; without a gateway it goes over the one that fits the number. Returns the
    message's id. The reference marks a test: the message's page, search and Reports show it. `key`
    is its idempotency key. `write_audit` is called once with an action and its target. Raises what
    intake raises, and OutcomeUnknown when the audit log cannot be written after it."""
    request = SmsRequest(
        biz=account.biz_id,
        to=(number.strip(),),
        text=content,
        account=account.name,
        reference=reference,
        gateway=gateway.pk if gateway else 0,
        idempotency_key=key,
    )
    (verdict,) = accept([request])
    verdict.raise_rejected()
    message_id = str(verdict.ids[0])
    try:
        # The message may have been stored although its first answer was lost.
        if not AuditLog.objects.filter(action="sms_tested", target=message_id).exists():
            gateway_name = gateway.name if gateway else ""
            write_audit("sms_tested", message_id, account=account.name, gateway=gateway_name)
    except UNAVAILABLE as error:  # the message is on its way: nobody may take it for refused
        raise OutcomeUnknown(f"The database failed: {type(error).__name__}") from error
    return message_id


class TestSmsBody(msgspec.Struct, forbid_unknown_fields=True):
    """A text to one number."""

    __test__ = False  # pytest takes the name for a test's

    to: Annotated[str, text("Such as 13800000000: it gets a real message", 32)]
    text: Annotated[str, text("The text", MAX_TEXT)]
    gateway: Annotated[
        str | None, text("The name of the gateway; left out: the one that fits the number", 64)
    ] = None


class TestSmsSerializer(serializers.Serializer[Any]):
    __test__ = False

    id = serializers.CharField(help_text="Of the message: its page in the console shows its way")


class AccountTestView(APIView):
    """Send a test SMS."""

    tag = "test sends"
    required_scope = "manage:tests"
    answers_limited_keys = True
    answers_not_now = True
    accepts_idempotency_key = True
    max_body_bytes = _BODY_BYTES

    @operation(
        TestSmsBody,
        {202: (TestSmsSerializer, "Accepted and durable.")},
        ("over a gateway", {"to": "13800000000", "text": "A test message", "gateway": "north"}),
    )
    def post(self, request: Request, name: str) -> Response:
        """Send a test SMS.

        One real message with the account's number, signature and fees; its daily limit counts it.
        Each request sends one, except a repeat with the same `Idempotency-Key`. 409 when the
        account, its business system or the gateway is switched off.
        """
        body = decode(request, TestSmsBody, _BODY_BYTES)
        key = idempotency_key(request, None)
        if key is not None:
            check_key(key)
            # The account's business system has keys of its own, which are others.
            identity = hashlib.sha256(f"{caller_of(request).key_id}\n{key}".encode())
            key = f"test:{identity.hexdigest()[:32]}"
        accounts = own_rows(request, SmsAccount.objects.select_related("biz"))
        account = accounts.filter(name=name).first()
        if account is None:
            raise Http404("There is no such account.")
        if not (account.enabled and account.biz.enabled):
            raise NotNow("The account or its business system is switched off.")
        gateway = None
        if body.gateway is not None:
            gateway = SmsGateway.objects.filter(name=body.gateway).first()
            if gateway is None:
                raise InvalidInput("There is no such gateway.", "gateway")
            if not gateway.enabled:
                raise NotNow("The gateway is switched off.")
        record = partial(audit, request)
        message_id = send(account, gateway, body.to, body.text, _REFERENCE, record, key or "")
        return Response({"id": message_id}, status.HTTP_202_ACCEPTED)
