"""Gateways and accounts as people set them up."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.models import SmsAccount, SmsGateway
from msgplatform.models import Biz
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import NamedField, SecretTextField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource


class PasswordField(SecretTextField):
    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, max_length=16, **options)


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
    secret_fields = frozenset({"login_password", "smg_login_password"})
    groups = [
        (None, ["name", "enabled", "host", "port"]),
        (
            _("Login"),
            ["login_name", "login_password", "smg_login_name", "smg_login_password", "networks",
             "operator", "corp_id", "area_code", "node_id"],
        ),
        (_("Which messages go this way"), ["prefixes", "priority"]),
        (
            _("Connections, speed and patience"),
            ["connections", "window", "speed_limit", "users_per_submit", "ascii_limit",
             "response_timeout", "resends", "idle_timeout", "report_hours", "own_process"],
        ),
    ]  # fmt: skip
    form_texts = {
        "enabled": _(
            "Off: nothing is sent over it, and our connections to the SMG are closed. The SMG "
            "may still connect to us, so that the Reports and MOs on their way arrive."
        ),
        "name": _("A short word for lists and statistics: letters, digits and hyphens"),
        "port": _("8801 is SGIP's own"),
        "login_name": _("With which we bind to the SMG; at most 16 ASCII characters"),
        "login_password": _("At most 16 ASCII characters"),
        "smg_login_password": _("At most 16 ASCII characters"),
        "networks": _(
            "From which the SMG connects to us, one a line: 203.0.113.7 or 203.0.113.0/28. Empty: "
            "from its host only. Connections from anywhere else are closed at once."
        ),
        "operator": _(
            "A short word. Gateways of the same operator may report on each other's messages; "
            "empty: this one reports on its own only"
        ),
        "corp_id": _("Five digits, from the operator's contract"),
        "area_code": _("Of the operator's city, with its leading 0: 010, 0755"),
        "prefixes": _("Recipients that go this way, one a line: 130 or 86130. Empty: everybody."),
        "users_per_submit": _(
            "Recipients of one text in one packet; at most 90 fit into the 2 KB of the "
            "specification"
        ),
        "response_timeout": _(
            "Seconds, 5 to 600; without a response the same bytes are sent again"
        ),
        "idle_timeout": _("Seconds without traffic after which the SMG closes a connection"),
    }
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

    def faults(self, row: SmsGateway, before: Before | None) -> Faults:
        """A stored password goes to no other server than the one for which it was entered."""
        if before is None or "login_password" not in before.kept_secrets:
            return
        stored = before.row
        if (row.host, row.port) != (stored.host, stored.port):
            words = gettext("The stored password was entered for %s: enter it again.")
            yield "login_password", words % f"{stored.host}:{stored.port}"


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
    moves = True
    model = SmsAccount
    serializer_class = AccountSerializer
    groups = [
        (None, ["biz", "name", "enabled", "is_default"]),
        (_("Numbers"), ["sp_number", "extension_digits", "keywords", "gateways"]),
        (
            _("What the operator gets"),
            ["corp_id", "service_type", "charge_number", "fee_type", "fee_value", "given_value",
             "agent_flag", "morelateto_mt_flag", "report_flag", "signature"],
        ),
        (_("What the business system gets"), ["report_batches"]),
        (_("Limits"), ["daily_limit", "recipients_limit"]),
    ]  # fmt: skip
    form_texts = {
        "name": _("What a call says in `account`: letters, digits and hyphens"),
        "sp_number": _("What recipients see as the sender; MOs to it are this account's"),
        "keywords": _(
            "An MO to a shared number that begins with one of these is ours, one a line."
        ),
        "corp_id": _("Five digits, from the operator's contract"),
        "service_type": _("The operator's code for this service; at most 10 ASCII characters"),
        "charge_number": _(
            "21 zeros: we pay; empty: each recipient; or a number that begins with 86"
        ),
        "fee_value": _("In fen (0.01 yuan); of a month with fee type 3"),
        "given_value": _("Credit given to the recipient, in fen"),
        "agent_flag": _("How the operator books the fee"),
        "morelateto_mt_flag": _("Why messages are sent; 2 for notices"),
        "recipients_limit": _("How many recipients one call may name"),
    }
    example = {"system": "orders", "sp_number": "10655012", "corp_id": "12345", "is_default": True}
    on_delete = (
        "Switches it off, for messages refer to it: calls that name it are refused. A PUT with "
        "enabled true takes it up again."
    )
    notes = "The business system and the gateways must be there."
    list_related = ("biz",)
    list_prefetched = ("gateways",)
    list_system = "biz"

    def faults(self, row: SmsAccount, before: Before | None) -> Faults:
        """A limited key gets no number and no keyword by which another system's MOs would come to
        its own: an MO goes to the longest number that begins its own, then by keyword."""
        stored = before.row if before else SmsAccount()
        names = ("sp_number", "keywords")
        changed_names = [name for name in names if getattr(row, name) != getattr(stored, name)]
        if not self.systems or not changed_names:
            return
        beginnings = [row.sp_number[:end] for end in range(1, len(row.sp_number) + 1)]
        is_near = Q(sp_number__in=beginnings) | Q(sp_number__startswith=row.sp_number)
        others = SmsAccount.objects.exclude(biz__name__in=self.systems)
        if others.filter(is_near).exists():
            yield (
                changed_names[0],
                "Another business system has this number, or one that begins it or begins with it: "
                "its incoming texts could come here. A key without a limit may set this up.",
            )
