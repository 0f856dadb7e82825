"""Tests of a CRM over the management API: its connection, and a made-up lead."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync import trials
from crmsync.models import Crm
from crmsync.setup.crms import addresses_of
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import audit
from msgplatform.doors.api.schema import operation

_BODY_BYTES = 65_536


class _TestView(APIView):
    tag = "test sends"
    required_scope = "manage:tests"
    answers_limited_keys = False


def crm_by_name(name: str) -> Crm:
    """Raises Http404."""
    row = Crm.objects.filter(name=name).first()
    if row is None:
        raise Http404("There is no such CRM.")
    return row


class CrmCheckSerializer(serializers.Serializer[Any]):
    usable = serializers.BooleanField(
        source="is_usable", help_text="true: the CRM may be used with these settings"
    )
    kind = serializers.CharField(
        help_text="ok, untested (the settings look right, but the CRM has no call that tells), or "
        "what is wrong: unreachable, credentials, settings, field"
    )
    message = serializers.CharField(help_text="A sentence for people")


class CrmTestView(_TestView):
    """Test a CRM."""

    @operation(None, {200: CrmCheckSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Test a CRM.

        Asks the CRM whether it takes the stored settings and credentials and has the fields of its
        mappings, for at most 20 seconds. Nothing is stored in the CRM.
        """
        row = crm_by_name(name)
        addresses = sorted(addresses_of(row.adapter, row.settings))
        audit(request, "crm_tested", row.name, addresses=addresses)
        return Response(CrmCheckSerializer(trials.check(row)).data)


class TestLeadBody(msgspec.Struct, forbid_unknown_fields=True):
    """A made-up lead, as the CRM gets it."""

    __test__ = False  # pytest takes the name for a test's

    key: Annotated[
        str | None,
        text("Left out: a new one. It begins with test-, so that no real lead is changed", 45,
             f"^{trials.KEY.pattern}$"),
    ] = None  # fmt: skip
    fields: Annotated[
        dict[str, Any] | None,
        field("By the names that the CRM has; left out: those of its mappings"),
    ] = None
    remove: Annotated[
        bool | None, field("false: it stays in the CRM; otherwise it is deleted afterwards")
    ] = None


class TestCallSerializer(serializers.Serializer[trials.Call]):
    """A request to the CRM and its answer, without secrets."""

    __test__ = False

    request = serializers.CharField()
    status = serializers.IntegerField()
    seconds = serializers.FloatField()
    answer = serializers.CharField()


class TestLeadSerializer(serializers.Serializer[trials.Trial]):
    """The outcome of a test lead."""

    __test__ = False

    taken = serializers.BooleanField(source="is_good", help_text="true: the CRM took it")
    outcome = serializers.CharField(source="words")
    removal = serializers.CharField()
    stored = serializers.SerializerMethodField(
        help_text="The CRM's record before it was deleted; null: it could not be read"
    )
    calls = TestCallSerializer(many=True)

    def get_stored(self, trial: trials.Trial) -> dict[str, Any] | None:
        return None if trial.stored is None else dict(msgspec.json.decode(trial.held))


class CrmTestLeadView(_TestView):
    """Send a test lead."""

    answers_not_now = True
    max_body_bytes = _BODY_BYTES

    @operation(
        TestLeadBody,
        {200: TestLeadSerializer},
        ("a lead", {"fields": {"name": "Ann", "phone": "1"}, "remove": True}),
    )
    def post(self, request: Request, name: str) -> Response:
        """Send a test lead.

        One made-up record is sent to the CRM now, past the queues, read back, and deleted again. It
        waits for at most 20 seconds; 503 while three others are being tried or the CRM does not
        answer, 409 when the CRM cannot be asked or has no such field.
        """
        body = decode(request, TestLeadBody, _BODY_BYTES)
        key = trials.usual_key() if body.key is None else body.key
        row = crm_by_name(name)
        fields: Mapping[str, Any] = trials.usual_fields(row) if body.fields is None else body.fields
        record = partial(audit, request)
        trial = trials.send(row, key, fields, body.remove is not False, record)
        return Response(TestLeadSerializer(trial).data)
