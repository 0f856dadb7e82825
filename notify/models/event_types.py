"""The catalogue of event types: a description of published events for the developers of publishers
and consumers."""

from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.errors import InvalidInput
from msgplatform.core.fields import ExactCharField
from msgplatform.core.json.values import MAX_STORED_DEPTH, depth
from msgplatform.core.lazy_text import translate_text
from msgplatform.models import Biz
from notify import personal_fields
from notify.subscriptions import limits


class EventType(models.Model):
    """An event type of one business system, or an entry that all of them share."""

    biz = models.ForeignKey(
        Biz,
        models.CASCADE,
        null=True,
        blank=True,
        verbose_name=_("system"),
        help_text=_("Empty: shared by all systems. A system's own entry goes before a shared one."),
    )
    # The system's id, 0 for a shared entry: NULL would not be unique.
    owner = models.PositiveBigIntegerField(default=0, editable=False)
    name = ExactCharField(
        _("event type"),
        max_length=128,
        validators=[limits.event_type],
        help_text=_("As it is published: order.paid"),
    )
    description = models.TextField(
        _("description"),
        blank=True,
        default="",
        max_length=10_000,
        help_text=_("When it is published, and what its fields mean"),
    )
    example = models.JSONField(
        _("example"),
        null=True,
        blank=True,
        help_text=_("A payload as JSON. Test sends begin with it; it must match the schema."),
    )
    schema = models.JSONField(
        _("JSON Schema"),
        null=True,
        blank=True,
        help_text=_(
            "Optional, of draft 2020-12 unless $schema names another. Payloads of systems that "
            "validate their events must match it, or are refused."
        ),
    )
    # NULL in rows of an earlier release.
    personal_fields = models.JSONField(
        _("personal fields"),
        null=True,
        blank=True,
        default=list,
        validators=[personal_fields.validate],
        help_text=_(
            "JSON Pointers to fields with personal data: /customer/phone, /passengers/*/name. They "
            "are erased with a person's data."
        ),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    changed_at = models.DateTimeField(_("changed"), auto_now=True)

    class Meta:
        db_table = "event_type"
        verbose_name = _("event type")
        verbose_name_plural = _("event types")
        ordering = ["name", "owner"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="event_type_key")]

    def __str__(self) -> str:
        return f"{self.biz}: {self.name}" if self.biz else self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.owner = self.biz_id or 0
        if (fields := kwargs.get("update_fields")) is not None:
            owner = ["owner"] if "biz" in fields else []
            kwargs["update_fields"] = {*fields, *owner, "changed_at"}  # processes look at it
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Check that the schema is usable, the example matches the schema, and the name is new."""
        self.owner = self.biz_id or 0
        errors: dict[str, Any] = {}
        other_rows = EventType.objects.filter(owner=self.owner, name=self.name).exclude(pk=self.pk)
        if other_rows.exists():
            errors["name"] = gettext("The catalogue has this event type already.")
        for name in ("example", "schema"):
            if depth(getattr(self, name)) > MAX_STORED_DEPTH:
                text = gettext("It is nested more than %d levels deep.")
                errors[name] = text % MAX_STORED_DEPTH
        if errors:
            raise ValidationError(errors)
        max_bytes = limits.MAX_PAYLOAD_BYTES
        if self.example is not None and len(msgspec.json.encode(self.example)) > max_bytes:
            errors["example"] = gettext("A payload has %d KiB at most.") % (max_bytes // 1024)
        if self.schema is not None:
            errors |= self._schema_errors()
        if errors:
            raise ValidationError(errors)

    def _schema_errors(self) -> dict[str, str]:
        # Daemons load the models, and need no library.
        from msgplatform.core.json import schema as json_schema

        if not isinstance(self.schema, dict):
            return {"schema": gettext('Write an object: {"type": "object"}.')}
        try:
            validator = json_schema.compile_schema(self.schema)
            if self.example is None:
                return {}
            mismatch = json_schema.first_error(validator, self.example)
        except InvalidInput as error:
            return {"schema": translate_text(error.args[0])}
        except RecursionError:
            return {"example": gettext("This is nested too deeply.")}
        if mismatch is None:
            return {}
        text = gettext("It does not match the schema at payload%(path)s: %(reason)s")
        return {"example": text % {"path": mismatch.path, "reason": mismatch.reason}}
