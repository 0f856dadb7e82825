"""People of the console and their groups over the management API.

Passwords are never in a request or an answer: a person chooses one by a link. Superusers are made
and changed in the console only, so that no key takes it from those who could take away the key.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import Count, Q, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform import person_limits
from msgplatform.core import invitations
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.doors.api.bodies import field
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import actor, audit
from msgplatform.doors.api.query import ListView
from msgplatform.doors.api.schema import operation
from msgplatform.setup.fields import FlagField, NamedField, TextField, WholeSerializer
from msgplatform.setup.resource import Resource

SCOPE = "manage:people"
_NAME = OpenApiParameter(
    "name",
    {"type": "string", "pattern": r"^[A-Za-z0-9_.@+-]+$", "maxLength": 150},
    OpenApiParameter.PATH,
    description="The name with which the person logs in",
)
_LIMIT_BYTES = 64 * 1024
_SUPERUSER = "A superuser is changed in the console only."


class PersonSerializer(WholeSerializer):
    """Somebody who uses the console."""

    name = serializers.CharField(source="username", read_only=True, help_text="")
    email = TextField(required=False, allow_null=True, allow_blank=True, max_length=254)
    enabled = FlagField(
        source="is_active",
        required=False,
        allow_null=True,
        help_text="false: cannot log in, and is logged out",
    )
    groups = NamedField(
        many=True,
        queryset=Group.objects.all(),
        required=False,
        allow_null=True,
        help_text="Names of groups, such as Viewer, Operator or Administrator: `GET /api/v1/roles`",
    )
    superuser = serializers.BooleanField(
        source="is_superuser", read_only=True, help_text="true: may do everything"
    )
    has_password = serializers.BooleanField(
        source="has_usable_password",
        read_only=True,
        help_text="false: the person has not chosen one yet",
    )
    systems = serializers.SerializerMethodField(
        help_text="The business systems to which the person is limited; null: no limit"
    )

    class Meta:
        model = User
        fields = ["name", "first_name", "last_name", "email", "enabled", "groups", "superuser",
                  "systems", "has_password", "last_login", "date_joined"]  # fmt: skip
        read_only_fields = ["last_login", "date_joined"]

    def get_systems(self, row: User) -> list[str] | None:
        limit = getattr(row, "limit", None)
        return limit and [system.name for system in limit.systems.all()]


class CreatedPersonSerializer(PersonSerializer):
    """The answer that has the link to choose a password, this once."""

    invitation = serializers.CharField(
        read_only=True,
        help_text="The path of the page on which the person chooses a password; it ends after a "
        "day or with its use, `invite` makes another. Whoever has it can log in as this person. It "
        "is empty where people sign in by the company's provider alone (LOCAL_PASSWORDS=no)",
    )

    class Meta(PersonSerializer.Meta):
        fields = [*PersonSerializer.Meta.fields, "invitation"]


class Person(Resource):
    noun, nouns = "person", "people"
    audit_noun = "user"
    list_path, path = "people", "people/<str:name>"
    scope = SCOPE
    answers_limited_keys = False
    model = User
    serializer_class = PersonSerializer
    created_serializer_class = CreatedPersonSerializer
    is_in_files = False  # people belong to one platform
    example = {"first_name": "Anna", "email": "anna@example.com", "groups": ["Operator"]}
    on_delete = (
        "Disables the person: they cannot log in, and are logged out. The audit log keeps the "
        "name; a PUT with enabled true takes it back. 409 for a superuser."
    )
    notes = (
        "Only the answer that creates a person (201) has the invitation, by which they choose a "
        "password. Permissions come from groups only. 409 for a superuser."
    )
    list_notes = "Everybody who can log in to the console, disabled people too, oldest first."
    list_order = ("id",)
    list_prefetched = ("groups", "limit__systems")
    parameters = [_NAME]
    conflicts = ("PUT", "DELETE")

    def rows(self) -> QuerySet[User]:
        # Compare exactly: MariaDB ignores case in whole texts, but not when it looks inside.
        return User.objects.filter(username=self.name, username__contains=self.name)

    def new(self) -> User:
        """Somebody without a password. People use the console, so they are staff."""
        if stored_user := User.objects.filter(username__iexact=self.name).first():
            raise InvalidInput(f"There is a person named {stored_user.username} already.", "name")
        if User.normalize_username(self.name) != self.name:
            raise InvalidInput("Write the name in its usual (NFKC) form.", "name")
        row = User(username=self.name, is_staff=True)
        row.set_unusable_password()
        return row

    @classmethod
    def title(cls, row: User) -> str:
        return row.get_username()

    @classmethod
    def lock_reason(cls, row: User) -> str:
        return _SUPERUSER if row.is_superuser else ""

    def after_save(self, row: User, is_new: bool) -> Mapping[str, Any]:
        if not is_new:
            return {}
        return {"invitation": invitations.link_path(row) if settings.LOCAL_PASSWORDS else ""}

    def remove(self, row: User) -> None:
        if row.is_superuser:
            raise NotNow(_SUPERUSER)
        if row.is_active:
            row.is_active = False
            row.save(update_fields=["is_active"])
            self.audit("user_disabled", self.title(row))


class InvitationSerializer(serializers.Serializer[Any]):
    invitation = serializers.CharField(help_text="The path of the page to choose a password")


class _People:
    tag = Person.nouns
    required_scope = SCOPE
    answers_limited_keys = False


class InviteView(_People, APIView):
    answers_not_now = True

    @operation(None, {200: InvitationSerializer}, parameters=[_NAME])
    def post(self, request: Request, name: str) -> Response:
        """Invite a person once more.

        For somebody who has not chosen a password yet, when the first invitation has ended or was
        lost. 409 for anybody else: people who have a password change it themselves, or have it set
        in the console. 409, too, where people sign in by the company's provider alone.
        """
        row = Person(actor(request), name=name).get()
        if row.is_superuser:
            raise NotNow(_SUPERUSER)
        if not settings.LOCAL_PASSWORDS:
            raise NotNow("People sign in by the company's provider (LOCAL_PASSWORDS=no).")
        if not invitations.is_open(row):
            raise NotNow("This person has a password, or is disabled.")
        audit(request, "user_invited", row.get_username())
        return Response({"invitation": invitations.link_path(row)})


class LimitBody(msgspec.Struct, forbid_unknown_fields=True):
    """The business systems that a person sees."""

    systems: Annotated[
        list[str] | None,
        field("Names of business systems; an empty list: none of them; null: no limit"),
    ]


class LimitedSerializer(serializers.Serializer[Any]):
    systems = serializers.ListField(child=serializers.CharField(), allow_null=True)


class PersonLimitView(_People, APIView):
    answers_not_now = ("PUT",)
    max_body_bytes = _LIMIT_BYTES

    @operation(
        LimitBody, {200: LimitedSerializer}, ("of a team", {"systems": ["orders"]}),
        parameters=[_NAME],
    )  # fmt: skip
    def put(self, request: Request, name: str) -> Response:
        """Limit a person to business systems.

        The person then sees and changes what belongs to these systems, and nothing else. The same
        request again changes nothing. 409 for a superuser.
        """
        row = Person(actor(request), name=name).get()
        if row.is_superuser:
            raise NotNow(_SUPERUSER)
        body = decode(request, LimitBody, _LIMIT_BYTES)
        person_limits.limit_person(row, body.systems, actor(request))
        limit = person_limits.limit_of(row)
        return Response({"systems": None if limit is None else list(limit)})


class RoleSerializer(serializers.ModelSerializer[Group]):
    """A group with what it may do."""

    role = serializers.SerializerMethodField(
        help_text="viewer, operator or administrator: shipped and kept up to date; empty: your own"
    )
    people = serializers.IntegerField(
        source="people_count", read_only=True, help_text="Enabled people in it"
    )
    permissions = serializers.SerializerMethodField(help_text="Such as notify.view_bizmsg")

    class Meta:
        model = Group
        fields = ["name", "role", "people", "permissions"]
        read_only_fields = fields

    def get_role(self, row: Group) -> str:
        role = getattr(row, "role", None)
        return role.name if role else ""

    def get_permissions(self, row: Group) -> list[str]:
        return sorted(
            f"{permission.content_type.app_label}.{permission.codename}"
            for permission in row.permissions.all()
        )


class RoleListView(_People, ListView):
    """List roles.

    The groups of people with their permissions, by id. They are set up in the console.
    """

    serializer_class = RoleSerializer
    keyset_ordering = ("id",)

    def get_queryset(self) -> QuerySet[Group]:
        rows = Group.objects.select_related("role")
        rows = rows.prefetch_related("permissions__content_type")
        return rows.annotate(people_count=Count("user", filter=Q(user__is_active=True)))
