"""Gateways and accounts as people set them up."""

from collections.abc import Mapping
from functools import partial

from django.db.models import Q
from django.utils.translation import gettext, gettext_lazy as _

from gateway import codes
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core.flows.text import Text
from msgplatform.models import Biz
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import NamedField, SecretTextField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource

_Password = partial(SecretTextField, trim_whitespace=False, max_length=16)


class GatewaySerializer(WholeSerializer):
    """An SMG of the operator. Field names are SGIP's where it has them; times are seconds."""

    login_password = _Password()
    smg_login_password = _Password()
    networks = TextListField()
    prefixes = TextListField()

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
        notes = {
            "login_password": "Never shown: left out, the stored one stays, unless host or port "
            "are others."
        }


class Gateway(Resource):
    noun, nouns = "gateway", "SMS gateways"
    audit_noun = "sms_gateway"
    list_path, path = "sms/gateways", "sms/gateways/<slug:name>"
    scope = "manage:gateways"
    answers_limited_keys = True
    model = SmsGateway
    serializer_class = GatewaySerializer
    secret_fields = frozenset({"login_password", "smg_login_password"})
    checked_fields = frozenset({"host", "port"})
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
        row_before = before.row
        if (row.host, row.port) != (row_before.host, row_before.port):
            words = gettext("The stored password was entered for %s: enter it again.")
            yield "login_password", words % row_before.address


class AccountSerializer(WholeSerializer):
    """The number, the fees and the limits with which a business system sends."""

    system = NamedField(source="biz", queryset=Biz.objects.all())
    gateways = NamedField(
        many=True, queryset=SmsGateway.objects.all(), required=False, allow_null=True
    )
    keywords = TextListField()

    class Meta:
        model = SmsAccount
        fields = [
            "name", "system", "enabled", "is_default", "sp_number", "extension_digits", "keywords",
            "gateways", "corp_id", "service_type", "charge_number", "fee_type", "fee_value",
            "given_value", "agent_flag", "morelateto_mt_flag", "report_flag", "signature",
            "report_batches", "daily_limit", "recipients_limit", "created_at",
        ]  # fmt: skip
        read_only_fields = ["name", "created_at"]
        # The form offers the codes by name. Each list of them is without gaps from 0.
        extra_kwargs = {
            "fee_type": {"max_value": len(codes.FEE_TYPES) - 1},
            "agent_flag": {"max_value": len(codes.AGENT_FLAGS) - 1},
            "morelateto_mt_flag": {"max_value": len(codes.MT_FLAGS) - 1},
        }


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
    example = {"system": "orders", "sp_number": "10655012", "corp_id": "12345", "is_default": True}
    on_delete = (
        "Switches it off, for messages refer to it: calls that name it are refused. A PUT with "
        "enabled true takes it up again."
    )
    notes = "The business system and the gateways must be there."
    list_related = ("biz",)
    list_prefetched = ("gateways",)
    list_system = "biz"

    @classmethod
    def fixed_fields(cls, row: SmsAccount) -> Mapping[str, Text]:
        """People who are limited to the new system could act on messages of the old one."""
        if not SgipMt.objects.filter(account_id=row.pk).exists():
            return {}
        return {"biz": _("Messages were sent with this account: it keeps its business system.")}

    def faults(self, row: SmsAccount, before: Before | None) -> Faults:
        """A limited key gets no number and no keyword by which another system's MOs would come to
        its own: an MO goes to the longest number that begins its own, then by keyword, then to a
        default. Nor does it switch on an account that would get them."""
        account_before = before.row if before else SmsAccount()
        changed_names = [
            name for name in ("sp_number", "keywords", "enabled", "is_default")
            if getattr(row, name) not in (getattr(account_before, name), False)
        ]  # fmt: skip
        if not self.systems or not changed_names:
            return
        beginnings = [row.sp_number[:end] for end in range(1, len(row.sp_number) + 1)]
        is_near = Q(sp_number__in=beginnings) | Q(sp_number__startswith=row.sp_number)
        if changed_names == ["is_default"]:  # it decides between accounts of one number
            is_near = Q(sp_number=row.sp_number)
        others = SmsAccount.objects.exclude(biz__name__in=self.systems)
        if others.filter(is_near).exists():
            yield (
                changed_names[0],
                "Another business system has this number, or one that begins it or begins with it: "
                "its incoming texts could come here. A key without a limit may set this up.",
            )
