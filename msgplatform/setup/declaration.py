"""The declaration of each kind of object that people set up: its fields, its rules, its texts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec
from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.flows.text import Text


class Before(msgspec.Struct, frozen=True):
    """The stored row that is changed, and the secret fields whose stored values the change
    keeps."""

    row: Any
    kept_secrets: frozenset[str] = frozenset()


Faults = Iterator[tuple[str, Text]]  # the model's name of the field, and a sentence
Group = tuple[Text | None, Sequence[str]]  # a title, and the model's names of its fields


def value_at(row: Any, lookup: str) -> Any:
    """The value of a lookup such as `biz__name`; None where a row on the way is missing."""
    for name in lookup.split("__"):
        row = getattr(row, name, None)
    return row


class Declaration:
    """One kind of object, such as consumers. An instance is the object that its address names.

    A kind sets the class attributes, and overrides `new` when its address is more than a name.
    `actor` is the name that the audit log shows.
    """

    noun: ClassVar[str]  # "consumer", for sentences
    nouns: ClassVar[str]  # "consumers", the group of the operations in the OpenAPI document
    list_path: ClassVar[str]  # "consumers"; '': the list of another kind includes these objects
    path: ClassVar[str]  # "consumers/<slug:name>"
    audit_noun: ClassVar[str] = ""  # prefix of actions in the audit log; '': `noun`
    # Part of the address → the lookup of its value in a row.
    address_lookups: ClassVar[Mapping[str, str]] = {"name": "name"}
    scope: ClassVar[str]  # scope that a management key needs
    # Lookup of the business system that an object belongs to; '': it belongs to the platform.
    system_lookup: ClassVar[str] = ""
    # True if keys that are limited to business systems may use the operations; they change only
    # what belongs to these systems.
    answers_limited_keys: ClassVar[bool | None] = None
    # The name of the section in a platform file ('': `list_path`), and whether there is a section.
    section: ClassVar[str] = ""
    is_in_files: ClassVar[bool] = True
    # True if these objects move with their business system to another cell. A kind that belongs to
    # no system is shared: the other cell may already have an object of the same content.
    moves: ClassVar[bool] = False
    # Columns that no body sets but that move with the row.
    moved_columns: ClassVar[Sequence[str]] = ()
    is_in_addresses: ClassVar[bool] = False  # the name finds the cell of a request
    # Columns whose default is a setting of the platform: a platform file says the same on another.
    always_written: ClassVar[frozenset[str]] = frozenset()
    # Models of other kinds that values name as text. The models of the address and of NamedFields
    # need not be listed.
    named_models: ClassVar[tuple[type[Model], ...]] = ()
    model: ClassVar[type[Model]]
    serializer_class: ClassVar[type[serializers.BaseSerializer[Any]]]
    # Serializer of the answer to the PUT that creates an object, if that answer shows more.
    created_serializer_class: ClassVar[type[serializers.BaseSerializer[Any]] | None] = None
    secret_fields: ClassVar[frozenset[str]] = frozenset()  # never written to the audit log
    # Fields that keep their stored values if a body leaves them out. Secrets always do.
    kept_fields: ClassVar[frozenset[str]] = frozenset()
    # True if DELETE deletes the row; False: it switches the row off, because messages refer to it.
    is_deleted: ClassVar[bool] = False
    # Fields that must be valid before a form asks for `faults`; None: all fields.
    checked_fields: ClassVar[frozenset[str] | None] = None

    # The console's form: its fields in groups. Form and API have the help texts of the model.
    groups: ClassVar[Sequence[Group]] = ()

    # The list: the order of its pages, relations that are read with it and with exports, and the
    # business system's column for the list's filter ('': no filter).
    list_order: ClassVar[Sequence[str]] = ("name",)
    list_related: ClassVar[Sequence[str]] = ()
    list_prefetched: ClassVar[Sequence[str]] = ()
    list_system: ClassVar[str] = ""

    # Texts of the OpenAPI document.
    example: ClassVar[Mapping[str, Any]]
    on_delete: ClassVar[str]
    notes: ClassVar[str] = ""
    list_notes: ClassVar[str] = ""  # '': "Every consumer, by name."
    parameters: ClassVar[Sequence[OpenApiParameter]] = ()  # descriptions of parts of the address
    conflicts: ClassVar[tuple[str, ...]] = ()  # methods whose answer may be 409

    # True if the object comes from another cell.
    is_moved: bool = False
    # The names of the business systems to which the caller is limited; empty: no limit.
    systems: frozenset[str] = frozenset()
    # Many-to-many field → the rows that a change sets; `faults` needs them.
    related: Mapping[str, Collection[Any]] = MappingProxyType({})

    def __init__(self, actor: str, **address: str) -> None:
        self.actor, self.address = actor, address

    @property
    def name(self) -> str:
        return self.address["name"]

    def rows(self) -> QuerySet[Any]:
        """The row that the address names, or none."""
        lookups = {lookup: self.address[part] for part, lookup in self.address_lookups.items()}
        return self.model._default_manager.filter(**lookups)

    @classmethod
    def all_rows(cls) -> QuerySet[Any]:
        """The rows that belong into a platform file."""
        return cls.model._default_manager.all()

    @classmethod
    def join_relations(cls, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with their relations, in a number of statements that does not grow with them."""
        rows = rows.prefetch_related(*cls.list_prefetched)
        return rows.select_related(*cls.list_related) if cls.list_related else rows

    @classmethod
    def visible_rows(cls, rows: QuerySet[Any], systems: Collection[str]) -> QuerySet[Any]:
        """The rows that a caller with a limit to these business systems may see (empty: no limit).
        A kind that belongs to the platform shows all rows."""
        if not systems or not cls.system_lookup:
            return rows
        return rows.filter(**{f"{cls.system_lookup}__in": systems})

    @classmethod
    def is_removed(cls, row: Any) -> bool:
        """True if `remove` has no more to do."""
        return not (cls.is_deleted or getattr(row, "enabled", True))

    @classmethod
    def is_written(cls, row: Any, field_name: str) -> bool:
        """True if a platform file has this field of the row when it is not the default."""
        return True

    def body_of_removed(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body that restores a removed object, made from the body of a platform file."""
        return body

    def new(self) -> Any:
        """An unsaved row for the address, with default values."""
        return self.model(name=self.name)

    @classmethod
    def lock_reason(cls, row: Any) -> Text:
        """The reason why the stored row cannot be changed at all, as a sentence; '' if it can."""
        return ""

    @classmethod
    def fixed_fields(cls, row: Any) -> Mapping[str, Text]:
        """Fields whose stored values stay → the reason as a sentence; '' for a part of the address,
        which no body can change."""
        return {}

    @classmethod
    def removal_fault(cls, row: Any) -> Text:
        """The reason why the row cannot be deleted now, as a sentence; '' if it can."""
        return ""

    def faults(self, row: Any, before: Before | None) -> Faults:
        """The faults of an unsaved row that involve several columns or stored rows. `before` is
        None for a new row."""
        yield from ()

    @classmethod
    def forget_cached(cls) -> None:
        """Drop this process's cache of such objects after a change of one."""
        Snapshot.expire_all()

    @classmethod
    def deleted_detail(cls, row: Any) -> Mapping[str, Any]:
        """The values of a deleted row that the audit log keeps."""
        return {}

    @classmethod
    def audit_word(cls) -> str:
        """The beginning of the audit log's actions."""
        return cls.audit_noun or cls.noun.replace(" ", "_")

    @classmethod
    def title(cls, row: Any) -> str:
        """The row's name in the audit log."""
        return str(row.name)

    @classmethod
    def secret_text(cls, row: Any, name: str) -> str:
        """A description of the secret that is stored in this field, without the secret; '' when
        there is none. The form shows it."""
        return ""

    @classmethod
    def hold(cls, row: Any) -> Sequence[str]:
        """Set fields of a moving row so that its work waits. Returns their names; none for a row
        that waits already."""
        return ()

    @classmethod
    def resume(cls, rows: Sequence[Any]) -> None:
        """Let the work of rows that `hold` has changed continue."""

    def after_save(self, row: Any, is_new: bool) -> Mapping[str, Any]:
        """Act in the transaction that stored a change. Returns `Stored.shown_once`."""
        return {}

    def set_dependent_fields(self, row: Any, names: Sequence[str]) -> Sequence[str]:
        """Set further fields that depend on a change; returns their names."""
        return ()

    @classmethod
    def audit_value(cls, name: str, value: Any) -> Any:
        """A field's value as the audit log and the answer to a platform file show it."""
        return value
