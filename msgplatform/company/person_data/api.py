"""One person's data over the management API: found, exported, erased."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from django.http import Http404, StreamingHttpResponse
from django.urls import path
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers, status
from rest_framework.generics import RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.company.person_data import erasures, people
from msgplatform.company.person_data.models import MAX_REASON, Erasure
from msgplatform.core.errors import Unavailable
from msgplatform.core.person.identity import KINDS, MAX_IDENTIFIERS
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import actor
from msgplatform.doors.api.query import ListView, QueryView
from msgplatform.doors.api.schema import operation

SCOPE = "manage:person-data"
_BODY_BYTES = 64 * 1024
_EXAMPLE = {"phones": ["+86 138-0013-8000"], "emails": ["li@example.com"], "users": ["shop/1001"]}


class IdentifiersBody(msgspec.Struct, forbid_unknown_fields=True):
    """The person, by at least one identifier."""

    phones: Annotated[
        Sequence[str] | None,
        field("In any usual spelling: +86 138-0013-8000", maxItems=MAX_IDENTIFIERS),
    ] = None
    emails: Annotated[Sequence[str] | None, field("E-mail addresses", maxItems=MAX_IDENTIFIERS)] = (
        None
    )
    users: Annotated[
        Sequence[str] | None,
        field("User ids of a business system: shop/1001", maxItems=MAX_IDENTIFIERS),
    ] = None
    leads: Annotated[Sequence[str] | None, field("Ids of leads", maxItems=MAX_IDENTIFIERS)] = None

    @property
    def identifiers(self) -> Mapping[str, Sequence[str]]:
        return {kind: getattr(self, kind) or () for kind in KINDS}


class ErasureBody(IdentifiersBody, forbid_unknown_fields=True, kw_only=True):
    """An erasure to start."""

    reason: Annotated[str, text("Why; kept, so without the identifiers", MAX_REASON)]
    ends_open: Annotated[
        bool | None, field("End what is on its way instead of waiting until it is delivered")
    ] = None


class HitsSerializer(serializers.Serializer[people.Hits]):
    """The data of one kind that is about the person."""

    kind = serializers.CharField(source="store.name")
    count = serializers.IntegerField(help_text="Rows, or keys of Redis")
    open = serializers.IntegerField(source="open_count", help_text="Those on their way")
    is_whole = serializers.BooleanField(
        help_text="false: there was no time to look at all, or it cannot be read now"
    )


class FoundSerializer(serializers.Serializer[Any]):
    """The places of the person's data."""

    kinds = HitsSerializer(many=True, help_text="Kinds of data with something of the person")


class ErasureSerializer(serializers.ModelSerializer[Erasure]):
    """An erasure, without the identifiers."""

    hashes = serializers.ListField(
        child=serializers.CharField(), help_text="Of each identifier, keyed by SECRET_KEY"
    )
    erased = serializers.DictField(
        child=serializers.IntegerField(), help_text="Rows erased so far, by kind of data"
    )
    open = serializers.DictField(
        child=serializers.IntegerField(), help_text="Rows that are waited for, by kind of data"
    )
    passes = serializers.IntegerField(read_only=True, help_text="Over all data, so far")

    class Meta:
        model = Erasure
        fields = ["key", "state", "reason", "ends_open", "hashes", "erased", "open", "passes",
                  "error", "created_by", "created_at", "finished_at", "repeated_at"]  # fmt: skip
        read_only_fields = fields


class _PersonData:
    tag = "person data"
    required_scope = SCOPE
    answers_limited_keys = False
    max_body_bytes = _BODY_BYTES


class PersonFindView(_PersonData, APIView):
    @operation(IdentifiersBody, {200: FoundSerializer}, ("a customer", _EXAMPLE))
    def post(self, request: Request) -> Response:
        """Find a person's data.

        Counts by kind, for about 20 seconds: with many millions of messages some kinds are not
        counted to their end, which an export and an erasure are. The audit log says who asked, with
        a keyed hash of each identifier.
        """
        person = people.person_of(decode(request, IdentifiersBody, _BODY_BYTES).identifiers)
        people.record(actor(request), "person_found", person)
        return Response(FoundSerializer({"kinds": people.preview(person)}).data)


class PersonExportView(_PersonData, APIView):
    @operation(
        IdentifiersBody,
        {200: OpenApiResponse({"type": "object", "additionalProperties": {}},
                              description="One JSON document; `data` has a list for each kind")},
        ("a customer", _EXAMPLE),
    )  # fmt: skip
    def post(self, request: Request) -> StreamingHttpResponse:
        """Export a person's data.

        One JSON document with everything that is held. It is sent while it is read, so that a
        document that ends in the middle is not whole.
        """
        person = people.person_of(decode(request, IdentifiersBody, _BODY_BYTES).identifiers)
        people.record(actor(request), "person_exported", person)
        return StreamingHttpResponse(people.export(person), content_type="application/json")


class ErasureListView(_PersonData, ListView):
    """List erasures.

    Newest first: who asked for which, what is done, and what is waited for.
    """

    serializer_class = ErasureSerializer
    queryset = Erasure.objects.all()

    @operation(
        ErasureBody,
        {201: ErasureSerializer},
        ("a customer", {**_EXAMPLE, "reason": "Asked for by mail on 26 November"}),
    )
    def post(self, request: Request) -> Response:
        """Start an erasure.

        Everything that the platform holds of the person is erased in the background; see what that
        is by finding it first. What is on its way is delivered before, unless `ends_open`. It
        cannot be undone.
        """
        body = decode(request, ErasureBody, _BODY_BYTES)
        try:
            row = erasures.start(
                body.identifiers, body.reason, bool(body.ends_open), actor(request)
            )
        except OSError as error:
            raise Unavailable(
                f"The list of erasures cannot be written ({error.strerror}), so nothing was "
                "started: a restored database would not know of it."
            ) from error
        return Response(ErasureSerializer(row).data, status.HTTP_201_CREATED)


class ErasureView(_PersonData, QueryView, RetrieveAPIView[Erasure]):
    """Show an erasure.

    It has ended when the state is done or cancelled.
    """

    serializer_class = ErasureSerializer
    queryset = Erasure.objects.all()
    lookup_field = "key"


def _change_erasure(request: Request, key: str, change: Callable[[str, str], Erasure]) -> Response:
    """The erasure after a change. Raises NotNow, Unavailable and Http404."""
    try:
        row = change(key, actor(request))
    except Erasure.DoesNotExist:
        raise Http404("There is no such erasure.") from None
    except OSError as error:
        raise Unavailable(
            f"The list of erasures cannot be written ({error.strerror}), so nothing was changed."
        ) from error
    return Response(ErasureSerializer(row).data)


class ErasureEndView(_PersonData, APIView):
    answers_not_now = True

    @operation(None, {200: ErasureSerializer})
    def post(self, request: Request, key: str) -> Response:
        """End what an erasure waits for.

        Messages that wait are not delivered, CRMs are not waited for, and bulk jobs whose filters
        name the person are cancelled. 409 when the erasure has ended.
        """
        return _change_erasure(request, key, erasures.end_open)


class ErasureCancelView(_PersonData, APIView):
    answers_not_now = True

    @operation(None, {200: ErasureSerializer})
    def post(self, request: Request, key: str) -> Response:
        """Cancel an erasure.

        What is erased stays erased. 409 when it has ended.
        """
        return _change_erasure(request, key, erasures.cancel)


urlpatterns = [
    path("person-data/erasures", ErasureListView.as_view(), name="erasures"),
    path("person-data/erasures/<slug:key>", ErasureView.as_view(), name="erasure"),
    path(
        "person-data/erasures/<slug:key>/cancel",
        ErasureCancelView.as_view(),
        name="erasure-cancel",
    ),
    path("person-data/erasures/<slug:key>/end", ErasureEndView.as_view(), name="erasure-end"),
    path("person-data/export", PersonExportView.as_view(), name="person-export"),
    path("person-data/find", PersonFindView.as_view(), name="person-find"),
]
