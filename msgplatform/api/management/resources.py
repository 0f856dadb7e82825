"""Things that people set up, each with a name: listed, shown, created or replaced, deleted.

A PUT describes the whole thing: what it leaves out, or gives as null, has its default afterwards.
The same PUT twice changes nothing. The model alone (`full_clean`) says which values are valid,
so that the console's forms and this API agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Field, Model, QuerySet
from django.http import Http404
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import serializers, status
from rest_framework.exceptions import ParseError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.api.access.authentication import caller_of
from msgplatform.api.management import fields
from msgplatform.api.query import NAME, ListView, QueryView
from msgplatform.core.json.values import is_same
from msgplatform.models import AuditLog

V = TypeVar("V", bound=type[Any])

OF_SYSTEM = OpenApiParameter("system", NAME, description="Only those of this business system")


class WholeSerializer(serializers.ModelSerializer[Any]):
    """A body that describes the whole thing. Unknown fields are refused; those that only the
    platform writes may be sent back as they were read, and are left alone."""

    serializer_field_mapping = fields.OF_MODELS

    def build_standard_field(self, field_name: str, model_field: Any) -> Any:
        field_class, options = super().build_standard_field(field_name, model_field)
        if not options.get("required", True) and not options.get("read_only"):
            options["allow_null"] = True  # as good as leaving it out
        return field_class, options

    def to_internal_value(self, data: Any) -> Any:
        fields.check_known(self, data)
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if value is not None}
        return super().to_internal_value(data)


def actor(request: Request) -> str:
    """The management key's name, for the audit log."""
    return f"{caller_of(request).key_name} (API key)"


def audit(request: Request, action: str, target: str, **detail: Any) -> None:
    """Store an action of a management key in the audit log."""
    AuditLog.objects.create(
        actor=actor(request),
        action=action,
        target=target[:200],
        detail=msgspec.to_builtins(detail),
    )


def body_of(request: Request) -> Any:
    """The body, decoded. Raises ParseError if there is none: what it leaves out gets its default,
    and nobody means all of it."""
    if not int(request.META.get("CONTENT_LENGTH") or 0):
        raise ParseError("The body is empty: send a JSON value.")
    return request.data


class ResourceView(QueryView, GenericAPIView[Any]):
    """One thing that its address names.

    A subclass sets `required_scope`, `serializer_class` and `word` (of its audit actions), and
    implements `rows`, `new` and `remove`. `secret_fields` are never written to the audit log,
    `kept_fields` stay as they are stored when a body leaves them out.
    """

    required_scope: str
    word = ""
    secret_fields: frozenset[str] = frozenset()
    kept_fields: frozenset[str] = frozenset()

    def rows(self) -> QuerySet[Any]:
        """The row that the address names, or none."""
        raise NotImplementedError

    def new(self) -> Model:
        """A row for that address, with its defaults, which is not saved yet."""
        raise NotImplementedError

    def remove(self, request: Request, row: Any) -> None:
        """Do what DELETE means to the row, which is locked, and write the audit log."""
        raise NotImplementedError

    def title(self, row: Any) -> str:
        """The row's name in the audit log."""
        return str(row.name)

    def after_save(self, row: Any, is_new: bool) -> Mapping[str, Any]:
        """Called in the transaction that stored a change; returns more fields for the answer."""
        return {}

    def set_dependent_fields(self, row: Any, names: Sequence[str]) -> Sequence[str]:
        """Set further fields that follow from a change; returns their names."""
        return ()

    def audit_value(self, name: str, value: Any) -> Any:
        """A field's value as the audit log shows it."""
        return value

    def get_row(self, for_change: bool = False) -> Any:
        """The row. Raises Http404."""
        rows = self.rows()
        row = (rows.select_for_update() if for_change else rows).first()
        if row is None:
            raise Http404("There is nothing of this name.")
        return row

    def get(self, request: Request, **_address: str) -> Response:
        return Response(self.get_serializer(self.get_row()).data)

    def put(self, request: Request, **_address: str) -> Response:
        try:
            return self._put(request)
        except IntegrityError:  # another request has created it meanwhile
            return self._put(request)

    def delete(self, request: Request, **_address: str) -> Response:
        with transaction.atomic():
            self.remove(request, self.get_row(for_change=True))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _put(self, request: Request) -> Response:
        with transaction.atomic():
            row: Any = self.rows().select_for_update().first()
            is_new = row is None
            row = self.new() if is_new else row
            body = self.get_serializer(row, data=body_of(request))
            body.is_valid(raise_exception=True)
            before = self._values(row)
            self._fill(row, body)
            row.full_clean(validate_unique=False, validate_constraints=False)
            after = self._values(row)
            changed_names = sorted(name for name in after if not is_same(before[name], after[name]))
            more: Mapping[str, Any] = {}
            if is_new or changed_names:
                also = self.set_dependent_fields(row, changed_names)
                row.save(update_fields=None if is_new else [*changed_names, *also])
                more = self.after_save(row, is_new)
                self._audit(request, row, is_new, changed_names, before, after)
        answer = {**self.get_serializer(row).data, **more}
        return Response(answer, status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)

    def _fill(self, row: Any, body: Any) -> None:
        """The body's values, and the default of each field that it leaves out."""
        for field in self._body_fields():
            if field.name in body.validated_data:
                setattr(row, field.name, body.validated_data[field.name])
            elif field.name not in self.kept_fields:
                setattr(row, field.name, field.get_default())

    def _body_fields(self) -> list[Field[Any, Any]]:
        """The model's fields that a body sets."""
        serializer: Any = self.get_serializer()
        names = {name for name, field in serializer.fields.items() if not field.read_only}
        columns: list[Field[Any, Any]] = serializer.Meta.model._meta.concrete_fields
        return [column for column in columns if column.name in names]

    def _values(self, row: Any) -> dict[str, Any]:
        return {field.name: field.value_from_object(row) for field in self._body_fields()}

    def _audit(
        self,
        request: Request,
        row: Any,
        is_new: bool,
        changed_names: list[str],
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        """Write the change to the audit log: values before and after, without secrets."""
        names = set(after if is_new else changed_names) - self.secret_fields

        def values_of(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: self.audit_value(name, values[name]) for name in sorted(names)}

        if is_new:
            audit(request, f"{self.word}_created", self.title(row), after=values_of(after))
        else:
            both = {"fields": changed_names, "before": values_of(before), "after": values_of(after)}
            audit(request, f"{self.word}_changed", self.title(row), **both)


class ResourceListView(ListView):
    """Everything of one kind, by name.

    A subclass sets `resource`, the view of one of them, whose scope it needs and whose fields it
    shows, and says which rows there are.
    """

    resource: ClassVar[type[ResourceView]]
    required_scope: str
    keyset_ordering: tuple[str, ...] = ("name",)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.required_scope = cls.resource.required_scope
        cls.serializer_class = cls.resource.serializer_class


def describe_list(tag: str, summary: str, description: str) -> Callable[[V], V]:
    """Describes a ResourceListView."""
    description_of_get = extend_schema(tags=[tag], summary=summary, description=description)
    return cast(Callable[[V], V], extend_schema_view(get=description_of_get))


def describe_resource(
    what: str,
    tag: str,
    serializer: type[serializers.BaseSerializer[Any]],
    example: Mapping[str, Any],
    on_delete: str,
    created_serializer: type[serializers.BaseSerializer[Any]] | None = None,
    notes: str = "",
    address: Sequence[OpenApiParameter] = (),
) -> Callable[[V], V]:
    """Describes the operations of a ResourceView. `deleted` says what DELETE does, `created` is the
    answer to the PUT that creates it, if that shows more; `address` has the parts of its address
    that need a description."""
    one = f"{'an' if what[0] in 'AEIOUaeiou' else 'a'} {what}"
    examples = [OpenApiExample(f"a whole {what}", dict(example), request_only=True)]
    answers: dict[int, Any] = {
        200: OpenApiResponse(serializer, "It was there, and is now as the body says."),
        201: OpenApiResponse(created_serializer or serializer, "It was created."),
    }
    wrap = extend_schema_view(
        get=extend_schema(
            tags=[tag],
            summary=f"Show {one}",
            description=f"The {what} of this name.",
            parameters=address,
        ),
        put=extend_schema(
            tags=[tag],
            summary=f"Create or replace {one}",
            description=f"Afterwards the {what} is as the body says: a field that is left out, or "
            f"null, has its default. The same request again changes nothing. {notes}".strip(),
            parameters=address,
            request=serializer,
            responses=answers,
            examples=examples,
        ),
        delete=extend_schema(
            tags=[tag],
            summary=f"Delete {one}",
            description=on_delete,
            parameters=address,
            responses={204: None},
        ),
    )
    return cast(Callable[[V], V], wrap)
