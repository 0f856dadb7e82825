"""Gateways and accounts over the management API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from gateway.models import SmsAccount, SmsGateway
from msgplatform.api.management.resources import OF_SYSTEM, ResourceListView
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from msgplatform.setup.fields import NamedField, TextField, TextListField
from msgplatform.setup.resource import Resource
from msgplatform.setup.serializers import WholeSerializer

_PASSWORDS = frozenset({"login_password", "smg_login_password"})


class PasswordField(TextField):
    """Written only: left out, the stored one stays."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            write_only=True,
            required=False,
            allow_null=True,
            trim_whitespace=False,
            max_length=16,
            **options,
        )


class GatewaySerializer(WholeSerializer):
    """An SMG of the operator. Field names are SGIP's where it has them; times are seconds."""

    login_password = PasswordField(
        help_text="With which we bind to the SMG. Never shown: left out, the stored one stays, "
        "unless host or port are others"
    )
    smg_login_password = PasswordField(
        help_text="With which the SMG binds to us. Never shown: left out, the stored one stays"
    )
    networks = TextListField(
        help_text="From which the SMG connects to us: 203.0.113.0/28. Empty: from its host"
    )
    prefixes = TextListField(help_text="Recipients that go this way: 86130. Empty: everybody")

    class Meta:
        model = SmsGateway
        fields = [
            "name", "enabled", "host", "port", "login_name", "login_password", "smg_login_name",
            "smg_login_password", "networks", "operator", "corp_id", "area_code", "node_id",
            "connections", "window", "speed_limit", "prefixes", "priority", "ascii_limit",
            "users_per_submit", "response_timeout", "resends", "idle_timeout", "report_hours",
            "own_process", "created_at",
        ]  # fmt: skip
        read_only_fields = ["name", "created_at"]


class Gateway(Resource):
    noun, nouns = "gateway", "SMS gateways"
    audit_noun = "sms_gateway"
    list_path, path = "sms/gateways", "sms/gateways/<slug:name>"
    scope = "manage:gateways"
    answers_limited_keys = True
    model = SmsGateway
    serializer_class = GatewaySerializer
    secret_fields = _PASSWORDS
    example = {
        "host": "203.0.113.7",
        "login_name": "acme",
        "login_password": "as agreed",
        "smg_login_name": "unicom",
        "smg_login_password": "as agreed",
        "corp_id": "12345",
        "prefixes": ["86130", "86131"],
    }
    on_delete = (
        "Switches it off, for messages refer to it: nothing is sent over it. Its SMG may still "
        "bind, and deliver the Reports and MOs on their way. A PUT with enabled true takes it up "
        "again."
    )
    notes = "Senders and receivers notice a change within seconds."
    list_notes = "Every gateway, by name."

    def check_change(
        self, row: SmsGateway, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        """A stored password goes to no other server than the one for which it was entered."""
        is_elsewhere = row.pk and (row.host, row.port) != (before["host"], before["port"])
        if is_elsewhere and "login_password" not in sent_names:
            address = f"{before['host']}:{before['port']}"
            raise InvalidInput(
                f"The stored password was entered for {address}: send it again.", "login_password"
            )


class AccountSerializer(WholeSerializer):
    """How a business system sends: its number, its fees, its limits."""

    system = NamedField(
        source="biz", queryset=Biz.objects.all(), help_text="The business system that sends"
    )
    gateways = NamedField(
        many=True,
        queryset=SmsGateway.objects.all(),
        required=False,
        allow_null=True,
        help_text="Names of gateways that it may use; empty: any",
    )
    keywords = TextListField(
        help_text="An MO to a shared number that begins with one of these is ours"
    )

    class Meta:
        model = SmsAccount
        fields = [
            "name", "system", "enabled", "is_default", "sp_number", "extension_digits", "keywords",
            "gateways", "corp_id", "service_type", "charge_number", "fee_type", "fee_value",
            "given_value", "agent_flag", "morelateto_mt_flag", "report_flag", "signature",
            "report_batches", "daily_limit", "recipients_limit", "created_at",
        ]  # fmt: skip
        read_only_fields = ["name", "created_at"]


class Account(Resource):
    noun, nouns = "account", "SMS accounts"
    audit_noun = "sms_account"
    list_path, path = "sms/accounts", "sms/accounts/<slug:name>"
    scope = "manage:accounts"
    answers_limited_keys = True
    system_lookup = "biz__name"
    model = SmsAccount
    serializer_class = AccountSerializer
    example = {"system": "orders", "sp_number": "10655012", "corp_id": "12345", "is_default": True}
    on_delete = (
        "Switches it off, for messages refer to it: calls that name it are refused. A PUT with "
        "enabled true takes it up again."
    )
    notes = "The business system and the gateways must be there."
    list_notes = "Every account, by name."

    def check_change(
        self, row: SmsAccount, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        """A limited key gets no number and no keyword by which another system's MOs would come to
        its own: an MO goes to the longest number that begins its own, then by keyword."""
        changed_names = [
            name for name in ("sp_number", "keywords") if getattr(row, name) != before[name]
        ]
        if not self.systems or not changed_names:
            return
        beginnings = [row.sp_number[:end] for end in range(1, len(row.sp_number) + 1)]
        is_near = Q(sp_number__in=beginnings) | Q(sp_number__startswith=row.sp_number)
        others = SmsAccount.objects.exclude(biz__name__in=self.systems)
        if others.filter(is_near).exists():
            raise InvalidInput(
                "Another business system has this number, or one that begins it or begins with it: "
                "its incoming texts could come here. A key without a limit may set this up.",
                changed_names[0],
            )


class AccountListView(ResourceListView):
    query = [OF_SYSTEM]

    def get_queryset(self) -> QuerySet[SmsAccount]:
        return self.of_system(SmsAccount.objects.select_related("biz").prefetch_related("gateways"))
