"""Gateways, and the accounts with which business systems send over them."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import (
    MaxLengthValidator,
    MaxValueValidator,
    MinValueValidator,
    RegexValidator,
)
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from gateway import sgip
from gateway.models import validators
from msgplatform.core.fields import ExactSlugField, Named
from msgplatform.core.http.addresses import bracketed
from msgplatform.core.secrets.fields import EncryptedTextField
from msgplatform.models import Biz

MAX_NUMBER = 21  # digits of an SP number with its extension, as SGIP has them
_digits = RegexValidator(r"^[0-9]+$", _("Digits only."))


class SmsGateway(Named):
    """An SMG of the operator. Field names are SGIP's where it has them; times are seconds."""

    name = ExactSlugField(
        _("name"), max_length=64, unique=True,
        help_text=_("For lists and statistics: letters, digits, hyphens and underscores"),
    )  # fmt: skip
    enabled = models.BooleanField(
        _("enabled"), default=True,
        help_text=_(
            "Off: nothing is sent over it, and our connections to the SMG are closed. The SMG may "
            "still connect to us, so that the Reports and MOs on their way arrive."
        ),
    )  # fmt: skip
    host = models.CharField(
        _("host"),
        max_length=200,
        validators=[validators.host],
        help_text=_("Name or address of the SMG"),
    )
    port = models.PositiveIntegerField(
        _("port"), default=8801, validators=[MinValueValidator(1), MaxValueValidator(65535)],
        help_text=_("8801 is SGIP's own"),
    )  # fmt: skip
    login_name = models.CharField(
        _("our login name"), max_length=16, validators=[validators.ascii_only],
        help_text=_("We bind to the SMG with it. At most 16 ASCII characters."),
    )  # fmt: skip
    login_password = EncryptedTextField(
        _("our password"), validators=[MaxLengthValidator(16), validators.ascii_only],
        help_text=_("We bind to the SMG with it. At most 16 ASCII characters."),
    )  # fmt: skip
    smg_login_name = models.CharField(
        _("the SMG's login name"),
        max_length=16,
        validators=[validators.ascii_only],
        help_text=_("The SMG binds to us with it. At most 16 ASCII characters."),
    )
    smg_login_password = EncryptedTextField(
        _("the SMG's password"), validators=[MaxLengthValidator(16), validators.ascii_only],
        help_text=_("The SMG binds to us with it. At most 16 ASCII characters."),
    )  # fmt: skip
    networks = models.JSONField(
        _("networks"), default=list, blank=True, validators=[validators.networks],
        help_text=_(
            "The SMG connects to us from there: 203.0.113.7 or 203.0.113.0/28. Empty: from its "
            "host only. Connections from anywhere else are closed at once."
        ),
    )  # fmt: skip
    operator = models.SlugField(
        _("operator"),
        max_length=64,
        blank=True,
        default="",
        db_index=False,  # no index: the directory has all rows in memory
        help_text=_(
            "A short word. Gateways of the same operator may report on each other's messages; "
            "empty: this one reports on its own only"
        ),
    )
    corp_id = models.CharField(
        _("corp id"), max_length=5, validators=[_digits],
        help_text=_("Five digits, from the operator's contract"),
    )  # fmt: skip
    area_code = models.CharField(
        _("area code"), max_length=4, default="010", validators=[_digits],
        help_text=_("Of the operator's city, with its leading 0: 010, 0755"),
    )  # fmt: skip
    node_id = models.BigIntegerField(
        _("node id"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(2**32 - 1)],
        help_text=_("Empty: 3 + area code + corp id, as the specification has it"),
    )
    connections = models.PositiveSmallIntegerField(
        _("connections"),
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(64)],
        help_text=_("Of all senders together: as many as the operator's contract allows"),
    )
    window = models.PositiveSmallIntegerField(
        _("window"),
        default=32,
        validators=[MinValueValidator(1), MaxValueValidator(1024)],
        help_text=_("Commands without an answer on one connection"),
    )
    speed_limit = models.FloatField(
        _("speed limit"), default=0.0, validators=[MinValueValidator(0.0)],
        help_text=_("Short messages a second over all connections; 0: no limit"),
    )  # fmt: skip
    # A list as people write it. `directory` turns it into prefixes of recipients' numbers.
    prefixes = models.JSONField(
        _("number prefixes"),
        default=list,
        blank=True,
        validators=[validators.prefixes],
        help_text=_("Recipients that go this way: 130 or 86130. Empty: everybody."),
    )
    priority = models.PositiveSmallIntegerField(
        _("priority"), default=0, help_text=_("Among gateways that fit, the highest is used first")
    )
    ascii_limit = models.PositiveSmallIntegerField(
        _("ASCII limit"),
        default=140,
        choices=[(140, "140"), (160, "160")],
        help_text=_("Characters of one pure ASCII message"),
    )
    users_per_submit = models.PositiveSmallIntegerField(
        _("users a Submit"), default=84, validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text=_(
            "Recipients of one text in one packet; at most 90 fit into the 2 KB of the "
            "specification"
        ),
    )  # fmt: skip
    # With a shorter time an SMG that is slow for a moment would lose its link again and again.
    response_timeout = models.FloatField(
        _("response timeout"), default=30.0,
        validators=[MinValueValidator(5), MaxValueValidator(600)],
        help_text=_("Seconds, 5 to 600; without a response the same bytes are sent again"),
    )  # fmt: skip
    resends = models.PositiveSmallIntegerField(
        _("repeats"), default=3, help_text=_("Of the same bytes when no response comes")
    )
    idle_timeout = models.FloatField(
        _("idle timeout"), default=60.0, validators=[MinValueValidator(1)],
        help_text=_("Seconds without traffic after which the SMG closes a connection"),
    )  # fmt: skip
    report_hours = models.FloatField(
        _("hours for a Report"),
        default=72.0,
        validators=[MinValueValidator(0.001), MaxValueValidator(720)],
        help_text=_(
            "After this a message without one ends as unknown; as accepted, if its account's "
            "report flag is “on failure”"
        ),
    )
    own_process = models.BooleanField(
        _("own process"),
        default=False,
        db_default=False,  # a release without this column may still write rows
        help_text=_(
            "Only a sender that is started for it serves it, and nothing else: manage.py up starts "
            "one; elsewhere start run_sms_sender with --gateway and its name."
        ),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "sms_gateway"
        verbose_name = _("gateway")
        verbose_name_plural = _("gateways")
        ordering = ["name"]

    @property
    def address(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    def sp_node_id(self) -> int:
        """Our node id, by default 3 + area code + corp id. Raises ValueError for a wrong area
        code."""
        if self.node_id is not None:
            return self.node_id
        return sgip.sp_node_id(self.area_code, self.corp_id)

    def clean(self) -> None:
        super().clean()
        try:
            self.sp_node_id()
        except ValueError:
            words = _("Two to four digits with the leading 0: 010, 0755.")
            raise ValidationError({"area_code": words}) from None


class SmsAccount(Named):
    """The number, the fees and the limits with which a business system sends."""

    biz = models.ForeignKey(
        Biz, models.PROTECT, verbose_name=_("system"),
        help_text=_("The business system that sends."),
    )  # fmt: skip
    name = ExactSlugField(
        _("name"), max_length=64, unique=True,
        help_text=_("What a call says in `account`: letters, digits, hyphens and underscores"),
    )  # fmt: skip
    enabled = models.BooleanField(_("enabled"), default=True)
    is_default = models.BooleanField(
        _("default"), default=False, help_text=_("Used when a call names no account")
    )
    gateways: models.ManyToManyField[SmsGateway, models.Model] = models.ManyToManyField(
        SmsGateway, verbose_name=_("gateways"), blank=True, help_text=_("Empty: any")
    )
    sp_number = models.CharField(
        _("SP number"), max_length=21, validators=[_digits],
        help_text=_("What recipients see as the sender; MOs to it are this account's"),
    )  # fmt: skip
    extension_digits = models.PositiveSmallIntegerField(
        _("extension digits"),
        default=0,
        help_text=_("How many digits a call may append to the SP number"),
    )
    keywords = models.JSONField(
        _("keywords"),
        default=list,
        blank=True,
        validators=[validators.keywords],
        help_text=_("The account gets MOs to a shared number whose text begins with one of these."),
    )
    corp_id = models.CharField(
        _("corp id"), max_length=5, validators=[_digits],
        help_text=_("Five digits, from the operator's contract"),
    )  # fmt: skip
    service_type = models.CharField(
        _("service type"), max_length=10, blank=True, default="",
        validators=[validators.ascii_only],
        help_text=_("The operator's code for this service; at most 10 ASCII characters"),
    )  # fmt: skip
    charge_number = models.CharField(
        _("charge number"),
        max_length=21,
        blank=True,
        default="0" * 21,
        validators=[_digits],
        help_text=_("21 zeros: we pay; empty: each recipient; or a number that begins with 86"),
    )
    fee_type = models.PositiveSmallIntegerField(_("fee type"), default=1)
    fee_value = models.CharField(
        _("fee value"), max_length=6, default="0", validators=[_digits],
        help_text=_("In fen (0.01 yuan); of a month with fee type 3"),
    )  # fmt: skip
    given_value = models.CharField(
        _("given value"), max_length=6, default="0", validators=[_digits],
        help_text=_("Credit given to the recipient, in fen"),
    )  # fmt: skip
    agent_flag = models.PositiveSmallIntegerField(
        _("agent flag"), default=0, help_text=_("How the operator books the fee")
    )
    morelateto_mt_flag = models.PositiveSmallIntegerField(
        _("MT flag"), default=2, help_text=_("Why messages are sent; 2 for notices")
    )
    report_flag = models.PositiveSmallIntegerField(
        _("report flag"),
        default=1,
        choices=[(0, _("on failure")), (1, _("always")), (2, _("never"))],
        help_text=_("With never, a message ends with its response"),
    )
    signature = models.CharField(
        _("signature"), max_length=20, blank=True, default="",
        help_text=_("What the carrier prepends, such as 【公司】; room is kept for it"),
    )  # fmt: skip
    report_batches = models.BooleanField(
        _("Reports in batches"),
        default=False,
        db_default=False,  # a release without this column may still write rows
        help_text=_(
            "Endings as events sms.reports, up to 200 in each, instead of one sms.report for each "
            "message"
        ),
    )
    daily_limit = models.PositiveIntegerField(
        _("messages a day"), default=0, help_text=_("0: no limit")
    )
    recipients_limit = models.PositiveIntegerField(
        _("recipients a call"), default=1000, validators=[MinValueValidator(1)],
        help_text=_("How many recipients one call may name"),
    )  # fmt: skip
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "sms_account"
        verbose_name = _("account")
        verbose_name_plural = _("accounts")
        ordering = ["name"]

    def clean(self) -> None:
        super().clean()
        faults: dict[str, Any] = {}
        if len(self.sp_number) + (self.extension_digits or 0) > MAX_NUMBER:
            faults["extension_digits"] = _("With the SP number at most 21 digits.")
        # An account that is off is no default.
        if self.is_default and self.enabled and self.biz_id:
            # Locked: of two that become the default at once, the second sees the first.
            if transaction.get_connection().in_atomic_block:
                list(Biz.objects.select_for_update().filter(pk=self.biz_id).values_list("pk"))
            others = SmsAccount.objects.filter(biz_id=self.biz_id, is_default=True, enabled=True)
            if other := others.exclude(pk=self.pk).first():
                faults["is_default"] = _("%s is this system's default already.") % other
        if faults:
            raise ValidationError(faults)
