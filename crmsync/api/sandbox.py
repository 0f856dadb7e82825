"""A sandbox CRM over the management API: what it holds, the calls that came, and how it answers."""

from typing import Annotated, Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync.adapters.sandbox import ANSWERS, Call, Records, StoredRecord, records_of
from crmsync.api.trials import crm_by_name
from crmsync.models import Crm
from msgplatform.core import sandbox
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.sandbox import Behaviour, KeptCall
from msgplatform.doors.api.bodies import field
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import audit
from msgplatform.doors.api.management.sandbox import MAX_BYTES, AnswerBody, AnswerSerializer
from msgplatform.doors.api.schema import operation

_STORE = "store"


class CrmBehaviourBody(AnswerBody, kw_only=True):
    """How the sandbox answers from now on; {} is the usual answer: it stores, at once."""

    answer: Annotated[
        str | None,
        field(
            "store; invalid: refuses the values for good; auth: refuses the credentials; "
            "throttled: 429; error: 500; down; lost: stores, and the answer does not arrive",
            enum=[_STORE, *ANSWERS, None],
        ),
    ] = None


class CrmAnswerSerializer(AnswerSerializer):
    """How it answers now."""

    answer = serializers.SerializerMethodField(help_text="store, or what it was told to do")

    def get_answer(self, behaviour: Behaviour) -> str:
        return behaviour.answer or _STORE


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ValuesField(serializers.JSONField):
    """The values of a record."""


class SandboxRecordSerializer(serializers.Serializer[StoredRecord]):
    """A record as the sandbox holds it."""

    key = serializers.CharField()
    version = serializers.IntegerField()
    values = ValuesField(source="fields", help_text="By the names of the CRM's fields")
    changed_at = serializers.DateTimeField()


class CrmCallSerializer(serializers.Serializer[KeptCall[Call]]):
    """A call that came."""

    at = serializers.DateTimeField(help_text="When it came")
    answer = serializers.SerializerMethodField(help_text="store, or what it was told to do")
    delay = serializers.FloatField(source="call.delay", help_text="Seconds before the answer")
    count = serializers.IntegerField(source="call.count", help_text="Records of the call")
    keys = serializers.SerializerMethodField(help_text="Of the first of them")

    def get_answer(self, entry: KeptCall[Call]) -> str:
        return entry.call.answer or _STORE

    def get_keys(self, entry: KeptCall[Call]) -> list[str]:
        return [record.key for record in entry.call.records]


class CrmSandboxSerializer(serializers.Serializer[Any]):
    """A sandbox CRM: its behaviour, what it holds, and the calls that came."""

    behaviour = CrmAnswerSerializer()
    records = SandboxRecordSerializer(many=True, help_text="The one that changed last first")
    calls = CrmCallSerializer(many=True, help_text="The newest first")


class CrmSandboxView(APIView):
    """The sandbox of a CRM of the kind sandbox."""

    tag = "sandbox"
    required_scope = "manage:sandbox"
    answers_not_now = ("GET", "PUT", "DELETE")
    answers_limited_keys = False
    max_body_bytes = MAX_BYTES

    @operation(None, {200: CrmSandboxSerializer})
    def get(self, request: Request, name: str) -> Response:
        """Read a sandbox CRM.

        Shows the records that the sandbox holds, at most 1000, the calls of the last hour, at most
        the newest 100, and how it answers now. 409 for a CRM of another kind.
        """
        store = _store_of(name)[1]
        content = {
            "behaviour": store.behaviour(),
            "records": store.all(),
            "calls": store.calls(Call),
        }
        return Response(CrmSandboxSerializer(content).data)

    @operation(
        CrmBehaviourBody,
        {200: CrmAnswerSerializer},
        ("two failures", {"answer": "error", "count": 2}),
    )
    def put(self, request: Request, name: str) -> Response:
        """Set how a sandbox CRM answers.

        With a failure, after a delay, for some minutes or calls; afterwards it stores at once, as
        usual. `{}` ends every other behaviour. 409 for a CRM of another kind.
        """
        body = decode(request, CrmBehaviourBody, MAX_BYTES)
        if body.answer not in (None, _STORE, *ANSWERS):
            raise InvalidInput(f"Use one of: {', '.join((_STORE, *ANSWERS))}.", "answer")
        answer = "" if body.answer in (None, _STORE) else str(body.answer)
        behaviour = body.behaviour(answer)
        row, store = _store_of(name)
        store.behave(behaviour, body.minutes_or_all)
        audit(request, "sandbox_behaviour", row.name, answer=answer or _STORE)
        return Response(CrmAnswerSerializer(store.behaviour()).data)

    @operation(None, {204: "It is empty."})
    def delete(self, request: Request, name: str) -> Response:
        """Empty a sandbox CRM.

        Drops its records and the calls; its behaviour stays. 409 for a CRM of another kind.
        """
        row, store = _store_of(name)
        store.empty()
        audit(request, "sandbox_emptied", row.name)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _store_of(name: str) -> tuple[Crm, Records]:
    """Raises Http404, and NotNow for a CRM of another kind."""
    if not sandbox.is_on():
        raise NotNow(sandbox.OFF)
    row = crm_by_name(name)
    if row.adapter != Crm.SANDBOX:
        raise NotNow("This CRM is of another kind than sandbox.")
    return row, records_of(row.settings)
