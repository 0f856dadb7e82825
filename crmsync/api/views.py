"""The REST endpoints of leads, under /api/v1/."""

from datetime import timedelta
from typing import Any

from django.http import Http404, HttpResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import MethodNotAllowed, Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync import directory
from crmsync.api import cors
from crmsync.api.requests import MAX_LEAD_BYTES, LeadChangeBody, NewLeadBody, NewLeadsBody
from crmsync.api.serializers import LeadSerializer
from crmsync.intake import changes, intake, limits
from crmsync.intake.intake import NewLead, RefusedLead
from crmsync.messages.index import LEADS
from crmsync.models import LandingPage, Lead
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.access.throttling import client_address
from msgplatform.doors.api.access.unknown_parts import HasKnownParts
from msgplatform.doors.api.intake import (
    AcceptedSerializer,
    BatchView,
    VerdictsSerializer,
    answer,
    idempotency_key,
)
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.message_list import MessageListView, parameter
from msgplatform.doors.api.query import ListView, moment
from msgplatform.doors.api.schema import operation
from msgplatform.messages.filters import read_filter

_UNKNOWN = "There is no landing page with this APPKEY, or it is switched off."
# A change has the time of its statement. After these seconds its transaction has ended
# (`IDLE_TRANSACTION_SECONDS`), so that a caller who follows the changes misses none.
_SETTLED = timedelta(seconds=15)
_OF_CHANGES = {"phone": "phone__in", "uid": "uid", "appkey": "appkey", "deleted": "is_delete"}


class LeadListView(MessageListView):
    """List leads.

    Your leads, newest first. Deleted leads are listed too, unless `deleted=false`. With `state`,
    `error_class`, `crm`, `policy` or `remote_id`: leads that stand so at a CRM.
    """

    tag = "leads"
    store = LEADS
    required_scope = {"GET": "leads:read", "POST": "leads:write"}
    # A page hosted elsewhere has no key; `post` checks its origin.
    permission_classes = [cors.KeyOrPage, HasKnownParts]
    accepts_idempotency_key = True
    # A proxy in front of cells finds the page's cell by `appkey`, and a page's script may pass on
    # what its advertisement added: a lead is not lost for that.
    write_parameters = None
    serializer_class = LeadSerializer
    max_body_bytes = MAX_LEAD_BYTES

    @operation(
        NewLeadBody,
        {
            202: (AcceptedSerializer, "Accepted and durable."),
            200: (AcceptedSerializer, "A repeat: it was accepted before."),
        },
        (
            "with an e-mail address",
            {
                "appkey": "5f1c0a9be2d34786",
                "name": "王小明",
                "phone": "13800000000",
                "extra": {"email": "wang@example.com"},
                "idempotency_key": "7f9d2c1e-5a0b-4c6e-9f57-2f0c8e1b6a34",
            },
        ),
        auth=[{"apiKey": []}, {}],  # with a key or, for pages hosted elsewhere, without
    )
    def post(self, request: Request) -> HttpResponse:
        """Store a lead.

        Store a lead of one of your landing pages. The answer comes when it is safe. A landing page
        that is hosted elsewhere needs no API key: its script sends the public APPKEY, from one of
        the origins that the landing page allows.
        """
        is_page, address = cors.may_be_page(request), client_address(request)
        # Before the body is read: anybody may send, so that a refusal must be cheap.
        if is_page and (wait := limits.wait_of_address(address)):
            raise Throttled(wait)
        body = decode(request, NewLeadBody, MAX_LEAD_BYTES)
        body.idempotency_key = idempotency_key(request, body.idempotency_key)
        page = directory.page(body.appkey)
        if not is_page:
            return answer(intake.add(_lead(caller_of(request).biz_id, page, body)))
        if page is None:
            raise InvalidInput(_UNKNOWN, "appkey")
        cors.admit(request, page)
        lead = _lead(page.biz_id, page, body, is_public=True)
        # A RefusedLead is only looked up.
        if isinstance(lead, NewLead) and (wait := limits.wait_of_page(page.appkey, address)):
            raise Throttled(wait)
        return answer(intake.add(lead))

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        # Only browsers use OPTIONS: they ask before a script may send.
        if not cors.is_preflight(request):
            raise MethodNotAllowed("OPTIONS")
        return cors.preflight()

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        cors.add_headers(request, final)
        return final


class LeadChangesView(ListView):
    """Follow changes of leads.

    Your leads in the order of their changes, deleted ones too: begin with a `since`, read pages to
    their end, and go on later with the last `updated_at` that you have seen. A change is in the
    list after 15 seconds, when its place is settled.
    """

    tag = "leads"
    required_scope = "leads:read"
    serializer_class = LeadSerializer
    query = [
        OpenApiParameter(
            "since",
            OpenApiTypes.DATETIME,
            required=True,
            description="Only leads changed then or later, such as 2026-11-20T08:00:00Z",
        ),
        *(parameter(name, LEADS.fields[name]) for name in _OF_CHANGES),
    ]
    keyset_within = ("biz_id",)
    keyset_ordering = ("update_time", "id")

    def get_queryset(self) -> Any:
        texts = {name: text for name, text in self.query_values.items() if name in _OF_CHANGES}
        conditions = {
            _OF_CHANGES[name]: value for name, value in read_filter(LEADS.fields, texts).items()
        }
        since = moment(self.query_values.get("since", ""), "since")
        rows = sql.of_one(Lead.objects.all(), "biz_id", caller_of(self.request).biz_id)
        return rows.filter(
            update_time__gte=since, update_time__lte=sql.now() - _SETTLED, **conditions
        )


class LeadBatchView(BatchView):
    """Store many leads.

    Store up to 1000 leads in one request. A wrong lead does not keep the others from being stored:
    the answer says of each, in order, what became of it.
    """

    tag = "leads"
    required_scope = "leads:write"
    body = NewLeadsBody
    results = VerdictsSerializer, "What became of each lead; everything created is durable."

    def post(self, request: Request) -> Response:
        # One query for each page of a batch, not for each lead.
        self._pages: dict[str, LandingPage | None] = {}
        return super().post(request)

    def read(self, body: NewLeadBody) -> NewLead | RefusedLead:
        if body.appkey not in self._pages:
            self._pages[body.appkey] = directory.page(body.appkey)
        return _lead(caller_of(self.request).biz_id, self._pages[body.appkey], body)

    def accept(self, items: list[NewLead | RefusedLead]) -> list[Verdict]:
        return intake.add_many(items)


def _lead(
    biz: int, page: LandingPage | None, body: NewLeadBody, is_public: bool = False
) -> NewLead | RefusedLead:
    """Raises InvalidInput for values that cannot be a duplicate either."""
    key, columns, extra = body.idempotency_key, body.columns, body.extra_fields
    uid = body.uid_text or ""
    if key is not None:
        idempotency.check_key(key)
    try:
        # The same answer for an APPKEY of another system: nobody learns that it exists.
        if page is None or page.biz_id != biz:
            raise InvalidInput(_UNKNOWN, "appkey")
        lead = intake.check_lead(page, columns, extra, uid, key)
        return intake.with_public_key(lead, key) if is_public and key is not None else lead
    except InvalidInput as error:
        if key is None:
            raise
        try:
            lead = intake.check_lead_without_page(biz, body.appkey, columns, extra, uid, key)
        except InvalidInput:  # no landing page takes these values: no duplicate
            raise error from None
        return RefusedLead(intake.with_public_key(lead, key) if is_public else lead, error)


_CHANGED = (
    "another number",
    {"name": "王小明", "phone": "13900000000", "extra": {"email": "wang@example.com"}},
)


class LeadView(APIView):
    """One lead."""

    tag = "leads"
    required_scope = {
        "GET": "leads:read", "PUT": "leads:write", "PATCH": "leads:write", "DELETE": "leads:write",
    }  # fmt: skip
    max_body_bytes = MAX_LEAD_BYTES

    @operation(None, {200: LeadSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Show a lead.

        One lead. A deleted lead can still be read: the CRMs have to learn of it.
        """
        return _lead_answer(Lead.objects.filter(biz_id=caller_of(request).biz_id, pk=pk).first())

    @operation(LeadChangeBody, {200: LeadSerializer}, _CHANGED)
    def put(self, request: Request, pk: int) -> Response:
        """Replace a lead.

        Replace everything but the APPKEY: what is left out or null is emptied.
        """
        body = self._body(request, pk)
        biz = caller_of(request).biz_id
        uid = body.uid_text or ""
        return _lead_answer(changes.replace(biz, pk, body.columns, body.extra_fields, uid))

    @operation(LeadChangeBody, {200: LeadSerializer}, _CHANGED)
    def patch(self, request: Request, pk: int) -> Response:
        """Change a lead.

        Change what is sent; the rest stays as it is. As in every JSON merge patch, null takes a
        value away, and null for `extra` all of its fields.
        """
        body = self._body(request, pk)
        biz = caller_of(request).biz_id
        return _lead_answer(changes.update(biz, pk, body.columns, body.extra_change, body.uid_text))

    @operation(None, {204: "Deleted, now or before."})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a lead.

        Mark a lead as deleted; the CRMs follow. It can be repeated.
        """
        if not changes.delete(caller_of(request).biz_id, pk):
            raise Http404
        return Response(status=204)

    def _body(self, request: Request, pk: int) -> LeadChangeBody:
        """Raises InvalidInput when it names another APPKEY."""
        body = decode(request, LeadChangeBody, MAX_LEAD_BYTES)
        if body.appkey is not None:
            rows = Lead.objects.filter(biz_id=caller_of(request).biz_id, pk=pk)
            # A lead that does not exist is answered with 404 later, not with this error.
            if rows.exclude(appkey=body.appkey).exists():
                raise InvalidInput("A lead keeps its APPKEY.", "appkey")
        return body


def _lead_answer(lead: Lead | None) -> Response:
    if lead is None:
        raise Http404("There is no lead with this id, or it is deleted.")
    return Response(LeadSerializer(lead).data)
