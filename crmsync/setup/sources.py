"""Sources as people set them up: tables of other databases, whose changes are read."""

from collections.abc import Mapping

from django.db.models import QuerySet
from django.utils.translation import gettext as _, gettext_lazy
from drf_spectacular.utils import OpenApiParameter

from crmsync.models import Policy, Source
from crmsync.models.sources import HIVE
from crmsync.poller.reading.source import source_from_row
from crmsync.trials import describe
from msgplatform.core.data import databases
from msgplatform.core.errors import InvalidInput
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import SecretTextField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource

SOURCE_NAME = {"type": "string", "pattern": r"^[^/\s]([^/]*[^/\s])?$", "maxLength": 100}
# These say where rows are read: watermarks and versions of records belong to this place.
_PLACE = ("table", "key_column", "time_column", "version_column")
# Field of a source in the poller → column of the row.
_COLUMNS = {"key": "key_column", "update_time": "time_column", "columns": "value_columns",
            "lag": "lag_seconds", "url": "database"}  # fmt: skip


class SourceSerializer(WholeSerializer):
    """A table whose changes are read."""

    database = SecretTextField()
    value_columns = TextListField()

    class Meta:
        model = Source
        fields = ["name", "database", "table", "key_column", "time_column", "deleted_column",
                  "version_column", "value_columns", "zone", "lag_seconds",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "created_at"]


class SourceResource(Resource):
    noun, nouns = "source", "sources"
    audit_noun = "sync_source"
    list_path, path = "sources", "sources/<str:name>"
    scope = "manage:sources"
    answers_limited_keys = True
    model = Source
    serializer_class = SourceSerializer
    secret_fields = frozenset({"database"})
    is_deleted = True
    groups = [
        (None, ["name", "database", "table"]),
        (
            gettext_lazy("Columns"),
            ["key_column", "time_column", "deleted_column", "version_column", "value_columns"],
        ),
        (gettext_lazy("Time"), ["zone", "lag_seconds"]),
    ]
    example = {
        "database": "mysql://reader:password@db.example.com:3306/shop",
        "table": "customer",
        "time_column": "updated_at",
        "value_columns": ["name", "email"],
    }
    on_delete = "Deletes a source that no policy carries; 409 for another one, and for the hive."
    notes = (
        "The hive, the platform's own leads, is there already and cannot be changed; neither can "
        "the table and the columns by which changes are seen while a policy carries the source."
    )
    parameters = [OpenApiParameter("name", SOURCE_NAME, OpenApiParameter.PATH)]
    conflicts = ("PUT", "DELETE")

    @classmethod
    def all_rows(cls) -> QuerySet[Source]:
        return Source.objects.exclude(name=HIVE)

    @classmethod
    def lock_reason(cls, row: Source) -> str:
        return "The hive cannot be changed." if row.is_hive else ""

    @classmethod
    def fixed_fields(cls, row: Source) -> Mapping[str, str]:
        if not Policy.objects.filter(source=row).exists():
            return {}
        words = "A policy carries this source: its place in the table means this column."
        return dict.fromkeys(_PLACE, words)

    @classmethod
    def removal_fault(cls, row: Source) -> str:
        is_kept = row.is_hive or Policy.objects.filter(source=row).exists()
        return "A policy carries this source, or it is the hive." if is_kept else ""

    @classmethod
    def secret_text(cls, row: Source, name: str) -> str:
        return _("A database is set.")

    def faults(self, row: Source, before: Before | None) -> Faults:
        """Faults in the database's address, else in the table and its columns."""
        try:
            databases.refuse_unsafe(databases.configuration(row.database))
        except InvalidInput as error:
            yield "database", describe(error)
            return
        try:
            source_from_row(row)
        except InvalidInput as error:
            yield _COLUMNS.get(error.field, error.field), describe(error)
