"""Landing pages over the management API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from crmsync.models import LandingPage
from crmsync.models.leads import MAX_APPKEY
from msgplatform.api.management.resources import OF_SYSTEM, ResourceListView
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from msgplatform.setup.fields import NamedField, TextListField
from msgplatform.setup.resource import Resource
from msgplatform.setup.serializers import WholeSerializer

_FORM_FIELD = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "required": {"type": "boolean"},
        "label": {"type": "string"},
    },
}


@extend_schema_field({"type": "array", "items": _FORM_FIELD})
class FormFieldsField(serializers.JSONField):
    """Fields of a form; `lead_fields` checks them."""


class LandingPageSerializer(WholeSerializer):
    """A page with a form, at /l/<appkey> or hosted elsewhere."""

    system = NamedField(
        source="biz",
        queryset=Biz.objects.all(),
        help_text="The business system that gets the leads; it stays as it was when the page was "
        "created",
    )
    form_fields = FormFieldsField(
        required=False,
        allow_null=True,
        help_text="In the order of the form. name, phone, email, company, city and message have "
        "labels; every other field needs one",
    )
    allowed_origins = TextListField(
        help_text="Where else the page is hosted: https://www.example.com. Scripts there may send "
        "leads with the APPKEY alone"
    )

    class Meta:
        model = LandingPage
        fields = ["appkey", "system", "title", "text", "form_fields", "language",
                  "allowed_origins", "enabled", "created_at"]  # fmt: skip
        read_only_fields = ["appkey", "created_at"]


class LandingPageResource(Resource):
    noun, nouns = "landing page", "landing pages"
    list_path, path = "landing-pages", "landing-pages/<str:appkey>"
    address_lookups = {"appkey": "appkey"}
    scope = "manage:landing-pages"
    answers_limited_keys = True
    system_lookup = "biz__name"
    model = LandingPage
    serializer_class = LandingPageSerializer
    example = {
        "system": "shop",
        "title": "Spring offer",
        "form_fields": [{"name": "name"}, {"name": "phone", "required": True}],
    }
    on_delete = (
        "Switches it off, for leads refer to it: the page is gone and takes no leads. A PUT with "
        "enabled true takes it up again."
    )
    notes = "The business system must be there."
    list_notes = "Every landing page, by its APPKEY."
    parameters = [
        OpenApiParameter(
            "appkey",
            {"type": "string", "pattern": "^[A-Za-z0-9_-]{4,64}$", "maxLength": MAX_APPKEY},
            OpenApiParameter.PATH,
            description="Public; names the page in its address and in every lead",
        )
    ]

    @property
    def name(self) -> str:
        return self.address["appkey"]

    def new(self) -> LandingPage:
        return LandingPage(appkey=self.name)

    def title(self, row: LandingPage) -> str:
        return str(row.appkey)

    def check_change(
        self, row: LandingPage, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        """Leads belong to the system that the page had when they came."""
        if row.pk and row.biz_id != before["biz"]:
            raise InvalidInput("A landing page keeps its business system.", "system")


class LandingPageListView(ResourceListView):
    keyset_ordering = ("appkey",)
    query = [OF_SYSTEM]

    def get_queryset(self) -> QuerySet[LandingPage]:
        return self.of_system(LandingPage.objects.select_related("biz"))
