"""Sources, policies that carry them to CRMs, watermarks and runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from crmsync.models.crms import Crm
from msgplatform.core.fields import ExactCharField, Named
from msgplatform.core.secrets.fields import EncryptedTextField
from msgplatform.models import Biz

HIVE = "hive"  # the source that always exists: the table `lead`
HIVE_COLUMNS = ("biz_id", "appkey", "uid", "name", "phone", "extra")
# Maximum of requests in one operation, which costs some twenty statements and three commits. From
# 1,000 ids on MariaDB plans a subquery instead (`in_predicate_conversion_threshold`).
MAX_BATCH = 900
# Age up to which a poller goes on with an unfinished run. Thousands of newer runs may follow it:
# while a comparison takes hours, each look for changes is a run of its own.
MAX_RUN = timedelta(days=7)
# Rows before a run are counted up to this number, to estimate the run's remaining time.
MAX_UNREAD = 1_000_000


class Source(Named):
    """A table whose changes are read: the hive, or one in another database."""

    name = ExactCharField(_("name"), max_length=100, unique=True)
    database = EncryptedTextField(
        _("database"), blank=True, default="",
        help_text=_("mysql://user:password@host:3306/name or sqlite:////path/to/file. Encrypted."),
    )  # fmt: skip
    table = models.CharField(_("table"), max_length=64)
    key_column = models.CharField(_("key column"), max_length=64, default="id")
    time_column = models.CharField(_("column of the time of change"), max_length=64)
    deleted_column = models.CharField(
        _("column that marks deleted rows"), max_length=64, blank=True, default=""
    )
    version_column = models.CharField(
        _("version column"), max_length=64, blank=True, default="",
        help_text=_("A number that grows with each change; needed for the comparison of versions."),
    )  # fmt: skip
    value_columns = models.JSONField(
        _("columns that are read"), default=list,
        help_text=_("The columns that mappings use; not those named above."),
    )  # fmt: skip
    zone = models.CharField(
        _("time zone"), max_length=64, default="UTC",
        help_text=_("In which the time of change is written: Asia/Shanghai, or +08:00."),
    )  # fmt: skip
    lag_seconds = models.PositiveIntegerField(
        _("longest transaction"), default=60,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text=_(
            "In seconds. Used only where the database does not show its open transactions: a "
            "change that is committed more than this long after it was written is found only by "
            "the comparison of versions."
        ),
    )  # fmt: skip
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "sync_source"
        verbose_name = _("source")
        verbose_name_plural = _("sources")
        ordering = ["name"]

    def clean(self) -> None:
        super().clean()
        has_fault = "/" in self.name or self.name != self.name.strip()
        stored_names = Source.objects.filter(pk=self.pk).values_list("name", flat=True)
        if has_fault and self.name != stored_names.first():  # a name of an earlier release stays
            words = _("No slash, and no blanks around it: the name is a part of addresses.")
            raise ValidationError({"name": words})

    @property
    def is_hive(self) -> bool:
        return bool(self.name == HIVE)

    @classmethod
    def hive(cls) -> Source:
        """The platform's own store of leads."""
        fields = {
            "table": "lead",
            "time_column": "UpdateTime",
            "deleted_column": "IsDelete",
            "version_column": "version",
            "value_columns": list(HIVE_COLUMNS),
        }
        return cls.objects.get_or_create(name=HIVE, defaults=fields)[0]


class Policy(models.Model):
    """How one source is carried to one CRM.

    One poller at a time holds it: `claimed_by` until `lease_until`. `requested` is the kind of a
    requested run, which the holder begins soon.
    """

    class Kind(models.TextChoices):
        """The rows that a run reads."""

        CHANGES = "changes", _("changes")
        FULL = "full", _("everything from the beginning")
        SWEEP = "sweep", _("comparison of versions")

    class OnConflict(models.TextChoices):
        """The treatment of a record that people made in the CRM."""

        FILL_EMPTY = "fill_empty", _("fill in its empty fields")
        UPDATE = "update", _("overwrite its fields")
        DEAD = "dead", _("change nothing: dead, for a person to decide")

    class Decision(models.TextChoices):
        """A person's decision on removals that the guard has stopped."""

        CONFIRMED = "confirmed"
        REFUSED = "refused"

    source = models.ForeignKey(Source, models.PROTECT, verbose_name=_("source"))
    crm = models.ForeignKey(Crm, models.PROTECT, verbose_name=_("CRM"))
    biz = models.ForeignKey(
        Biz, models.PROTECT, null=True, blank=True, verbose_name=_("system"),
        help_text=_("Only this system's leads; empty: those of all."),
    )  # fmt: skip
    appkeys = models.JSONField(
        _("APPKEYs"), default=list, blank=True,
        help_text=_("Only leads of these landing pages. Empty: all."),
    )  # fmt: skip
    mapping = models.TextField(
        _("mapping"), max_length=20_000,
        help_text=_(
            "One line for each field of the CRM: LastName = name. A property of a JSON column: "
            "Email = extra.email. Several choices, of which the first that is not empty is sent: "
            'Company = extra.company or "-". Write text in quotation marks. An empty value is not '
            "sent; when the line ends with “or null”, it clears the field in the CRM."
        ),
    )  # fmt: skip
    key_prefix = models.CharField(
        _("prefix of keys"), max_length=20, blank=True, default="",
        help_text=_("Before each key in the CRM. Two sources of one CRM need different ones."),
    )  # fmt: skip
    interval_seconds = models.PositiveIntegerField(
        _("interval"), default=10,
        validators=[MinValueValidator(1), MaxValueValidator(86_400)],
        help_text=_("Seconds between two looks for changes."),
    )  # fmt: skip
    cron = models.CharField(
        _("schedule"), max_length=100, blank=True, default="",
        help_text=_("As in crontab, instead of the interval: */5 8-20 * * 1-5"),
    )  # fmt: skip
    hours = models.CharField(
        _("hours"), max_length=100, blank=True, default="",
        help_text=_(
            "The source is read in these hours only: 08:00-20:00, or several, joined by commas; "
            "empty: always. Requested runs, sends and retries go on at any hour."
        ),
    )  # fmt: skip
    batch_size = models.PositiveIntegerField(
        _("batch size"), default=MAX_BATCH,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BATCH)],
        help_text=_("Records in one operation, at most."),
    )  # fmt: skip
    sweep_cron = models.CharField(
        _("comparison of versions"), max_length=100, blank=True, default="30 3 * * *",
        help_text=_("When every row's version is compared with what was sent; empty: never."),
    )  # fmt: skip
    on_conflict = models.CharField(
        _("on a conflict"), max_length=10, choices=OnConflict, default=OnConflict.FILL_EMPTY,
        db_default=OnConflict.FILL_EMPTY,
        help_text=_(
            "When people made a record of this person in the CRM. Anybody can fill in a public "
            "form with a customer's address."
        ),
    )  # fmt: skip
    delete_adopted = models.BooleanField(
        _("delete such records"), default=False, db_default=False,
        help_text=_(
            "Off: when the lead is deleted, a record that people made stays in the CRM, without "
            "the lead's key."
        ),
    )  # fmt: skip
    guard_percent = models.PositiveSmallIntegerField(
        _("removals that stop, in percent"), default=20, db_default=20,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text=_(
            "Removals delete a record or clear a field. If those of 24 hours together are more "
            "than this share of the policy's records in the CRM, no more are sent until a person "
            "decides; other changes go on. 100: never."
        ),
    )  # fmt: skip
    guard_records = models.PositiveIntegerField(
        _("and at least"), default=50, db_default=50, validators=[MinValueValidator(1)],
        help_text=_("Fewer records than this are deleted or cleared without a question."),
    )  # fmt: skip
    enabled = models.BooleanField(_("enabled"), default=True)
    # The stop of the guard and its numbers, and what a person has decided about the removals that
    # were held until then; see `poller/removal_guard.py`.
    stopped_at = models.DateTimeField(null=True, editable=False)
    stopped_removals = models.BigIntegerField(default=0, db_default=0, editable=False)
    stopped_records = models.BigIntegerField(default=0, db_default=0, editable=False)
    decision = models.CharField(
        max_length=9, choices=Decision, blank=True, default="", db_default="", editable=False
    )
    decided_at = models.DateTimeField(null=True, editable=False)
    # A kind of run, until the poller begins it; empty: no request.
    requested = models.CharField(max_length=8, blank=True, default="", editable=False)
    requested_by = models.CharField(max_length=150, blank=True, default="", editable=False)
    swept_at = models.DateTimeField(null=True, editable=False)
    # The lease of the poller that holds the policy; see `poller/poller.py`.
    claimed_by = models.CharField(max_length=32, blank=True, default="", editable=False)
    lease_until = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "sync_policy"
        verbose_name = _("policy")
        verbose_name_plural = _("policies")
        ordering = ["source__name", "crm__name"]
        permissions = [("operate_policy", "Can ask for runs, and decide on removals")]
        constraints = [
            models.UniqueConstraint(fields=["source", "crm"], name="sync_policy_source_crm")
        ]

    def __str__(self) -> str:
        return f"{self.source} → {self.crm}"

    def carries(self, values: Mapping[str, Any]) -> bool:
        """True if rows of the source with this `biz_id` and `appkey` are carried."""
        if self.biz_id is not None and values.get("biz_id") != self.biz_id:
            return False
        return not self.appkeys or values.get("appkey") in self.appkeys

    @property
    def choosing_columns(self) -> list[str]:
        """The columns of the source by which rows are carried or not."""
        choices = (("biz_id", self.biz_id is not None), ("appkey", bool(self.appkeys)))
        return [name for name, is_limited in choices if is_limited]

    @property
    def is_stopped(self) -> bool:
        """True if the guard waits for a person's decision."""
        return self.stopped_at is not None and not self.decision

    @classmethod
    def with_names(cls) -> models.QuerySet[Policy]:
        """Every policy with its source and its CRM, without columns that are large or secret."""
        deferred_columns = ("mapping", "source__database", "crm__settings", "crm__credentials")
        return cls.objects.select_related("source", "crm").defer(*deferred_columns)


class Watermark(models.Model):
    """How far a policy's source was read: the largest (UpdateTime, key).

    It moves in the transaction that stores the operation.
    """

    policy = models.OneToOneField(Policy, models.CASCADE, primary_key=True)
    update_time = models.CharField(max_length=40, help_text="as the column has it, in its zone")
    key: Any = models.JSONField()
    moved_at = models.DateTimeField()

    class Meta:
        db_table = "sync_watermark"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.update_time} {self.key}"


class Run(models.Model):
    """One reading of a source until nothing more was there. `read` and `unchanged` count records.

    `unread` is how many rows lay before it when it began, counted up to MAX_UNREAD.
    """

    class State(models.IntegerChoices):
        READING = 0, _("reading")
        READ = 1, _("everything is read")
        FAILED = 2, _("failed")

    id = models.BigIntegerField(primary_key=True)
    policy_id = models.BigIntegerField()
    kind = models.CharField(_("kind"), max_length=8, choices=Policy.Kind)
    requested_by = models.CharField(_("asked for by"), max_length=150, blank=True, default="")
    state = models.PositiveSmallIntegerField(_("state"), choices=State, default=State.READING)
    started_at = models.DateTimeField(_("began"))
    read_at = models.DateTimeField(_("everything read"), null=True)
    read = models.BigIntegerField(_("read"), default=0)
    unchanged = models.BigIntegerField(_("unchanged"), default=0)
    unread = models.BigIntegerField(default=0)
    after: Any = models.JSONField(null=True, default=None)  # a sweep: the key it has come to
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")

    class Meta:
        db_table = "sync_run"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-id"]
        indexes = [models.Index(fields=["policy_id", "id"], name="sync_run_of_policy")]

    def __str__(self) -> str:
        return str(self.pk)
