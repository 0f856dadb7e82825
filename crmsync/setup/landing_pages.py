"""Landing pages as people set them up."""

from collections.abc import Mapping

from django.utils.translation import gettext as _, gettext_lazy
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from crmsync.models import LandingPage
from crmsync.models.leads import MAX_APPKEY, appkey_prefix
from msgplatform.core.flows.text import Text
from msgplatform.models import Biz
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import NamedField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource

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

    system = NamedField(source="biz", queryset=Biz.objects.all())
    form_fields = FormFieldsField(required=False, allow_null=True)
    allowed_origins = TextListField()

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
    moves = is_in_addresses = True
    model = LandingPage
    serializer_class = LandingPageSerializer
    groups = [
        (None, ["biz", "title", "appkey", "enabled", "page"]),  # "page" is a cell of the console
        (gettext_lazy("The page"), ["text", "form_fields", "language"]),
        (gettext_lazy("Hosted elsewhere"), ["allowed_origins"]),
    ]
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
    list_order = ("appkey",)
    list_related = ("biz",)
    list_system = "biz"
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

    @classmethod
    def title(cls, row: LandingPage) -> str:
        return str(row.appkey)

    @classmethod
    def fixed_fields(cls, row: LandingPage) -> Mapping[str, Text]:
        """Leads belong to the system that the page had when they came, and name its APPKEY."""
        return {"biz": "A landing page keeps its business system.", "appkey": ""}

    def faults(self, row: LandingPage, before: Before | None) -> Faults:
        is_new = before is None and not self.is_moved
        if is_new and not row.appkey.startswith(prefix := appkey_prefix()):
            words = _("Begin it with %s: the proxy finds this cell by it.")
            yield "appkey", words % prefix
