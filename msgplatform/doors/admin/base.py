"""The base class of every admin in the platform."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet, TextField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST
from unfold.widgets import UnfoldAdminTextareaWidget

from msgplatform import person_limits
from msgplatform.core import personal
from msgplatform.core.characters import NO_CONTROLS, has_controls, unify_line_ends
from msgplatform.core.flows.text import Text
from msgplatform.doors.admin import auditing
from msgplatform.doors.admin.auditing import audit, hidden_fields
from msgplatform.doors.admin.versions import ComparedAdmin
from msgplatform.models import Biz

if TYPE_CHECKING:  # unfold's classes are Django's with additions, but without types
    from django.contrib.admin.views.main import ChangeList
else:
    from unfold.views import ChangeList


def sees_personal(request: HttpRequest) -> bool:
    """True if this person may see payloads, texts and telephone numbers in clear."""
    return bool(request.user.has_perm(personal.PERMISSION))


class PlainList(ChangeList):
    """A list that offers "show all" only if a filter hides some rows, and whose title says what it
    lists."""

    result_list: Any
    sortable_by: Sequence[Any]
    title: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = capfirst(str(self.opts.verbose_name_plural))

    def get_ordering_field(self, field_name: Any) -> Any:
        """The field by which a column sorts, if its header offers that: an address may name any."""
        return super().get_ordering_field(field_name) if field_name in self.sortable_by else None

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not (self.query or self.has_active_filters):
            self.full_result_count = self.result_count


def next_page(request: HttpRequest) -> str:
    """The page of the console to which a form leads after it is saved; '' for none."""
    url = request.GET.get("next", "")
    return url if url_has_allowed_host_and_scheme(url, None) else ""


def refuse_controls(text: Any) -> None:
    """Raises ValidationError for a text that API and platform file refuse."""
    if isinstance(text, str) and has_controls(text, has_lines=True):
        raise ValidationError(NO_CONTROLS)


def with_controls_check(field: Any) -> Any:
    """The form's field, which refuses such a text if it takes any."""
    if isinstance(field, forms.CharField):
        field.validators = [*field.validators, refuse_controls]
    return field


class Textarea(UnfoldAdminTextareaWidget):  # type: ignore[misc]  # the theme has no types
    """The theme's text area. Its lines end as API and platform files write them: else each save
    would change a text that nobody has touched."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        text = super().value_from_datadict(data, files, name)
        return unify_line_ends(text) if isinstance(text, str) else text


class HealthList(PlainList):
    """A list that reads the health of the rows of its page, all at once."""

    read_health: Callable[[Sequence[Any]], Mapping[int, Any]]  # health by primary key

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = rows = list(self.result_list)
        health_by_id = self.read_health(rows)
        for row in rows:
            row.health = health_by_id[row.pk]


class AdminPage(NamedTuple):
    """A page of an admin beside its list and its form.

    `view` is a method of the admin, by its name, or a function of the admin, the request and the
    values of the route. `name` is that of the address: `admin:<name>`.
    """

    route: str
    name: str
    view: str | Callable[..., Any]
    is_post: bool = False  # True if the address takes forms only: a link must not do anything


class ModelAdmin(ComparedAdmin):
    """The theme's admin with our defaults. Every change of a row is audited."""

    formfield_overrides = {TextField: {"widget": Textarea}}
    list_per_page = 50
    show_full_result_count = False  # no COUNT of the whole table
    empty_text: Text = ""  # text of the empty list; '': a sentence for any model
    # Field → the column that people see instead if they may not change the row.
    shown_instead: Mapping[str, str] = {}
    # Columns that only people with the permission for personal data see in clear: fields that
    # identify a person, and contents of messages.
    personal_fields: Sequence[str] = ()
    content_fields: Sequence[str] = ()
    # Columns in whose sentences numbers and addresses are masked; a filter may ask for a whole one.
    sentence_fields: Sequence[str] = ()
    # Lookup of the id of the business system to which a row belongs. '': rows belong to the
    # platform, and people who are limited to business systems are refused.
    system_lookup = ""
    # The views that answer limited people. Each gets its rows from `get_queryset`.
    limited_views: frozenset[str] = frozenset()
    # True if limited people with the permission may change the rows of their systems.
    limited_may_change = False
    # Columns of their systems' rows that limited people see but cannot change.
    limited_readonly: Sequence[str] = ()
    list_class: type[ChangeList] = PlainList
    further_pages: Sequence[AdminPage] = ()

    def get_urls(self) -> list[URLPattern]:
        patterns = []
        for page in self.further_pages:
            if isinstance(page.view, str):
                view = getattr(self, page.view)
            else:
                view = update_wrapper(partial(page.view, self), page.view)
            view = self.admin_site.admin_view(require_POST(view) if page.is_post else view)
            patterns.append(path(page.route, view, name=page.name))
        return [*patterns, *super().get_urls()]

    def row_for(self, request: HttpRequest, pk: int, verb: str = "change") -> Any:
        """The row of a further page. Raises Http404, and PermissionDenied for people who may not
        view, change or operate it, as `verb` says; '': the page checks permissions itself."""
        row = self.get_queryset(request).filter(pk=pk).first()
        if row is None:
            raise Http404(_("There is no such %s.") % self.opts.verbose_name)
        if verb and not getattr(self, f"has_{verb}_permission")(request, row):
            raise PermissionDenied
        return row

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return self.list_class

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """People who may not change a row see its stored fields, without the hidden fields."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        secret_names = hidden_fields(self.model)

        def visible_names(names: Sequence[Any]) -> list[Any]:
            columns = [self.shown_instead.get(name, name) for name in names]
            return [column for column in columns if column not in secret_names]

        return [
            (title, {**options, "fields": visible_names(options["fields"])})
            for title, options in fieldsets
        ]

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """No filter in the URL on hidden fields, or on those of which people who may not change a
        row see less: it would reveal them, one character at a time."""
        names = lookup.split("__")
        if names[0] in self.shown_instead and not self.has_change_permission(request):
            return False
        own_columns = {field.name for field in self.opts.concrete_fields if not field.is_relation}
        model = self.model if names[0] in own_columns else None
        secret_names = hidden_fields(model).intersection(names)
        masked_names = [*self.personal_fields, *self.content_fields]
        if names[1:] not in ([], ["exact"]):
            masked_names += self.sentence_fields
        if not secret_names and names[0] in masked_names:
            return sees_personal(request)
        return not secret_names and bool(super().lookup_allowed(lookup, value, request))

    # -- people who are limited to business systems ------------------------------------------------
    def limited_rows(self, rows: QuerySet[Any], system_ids: frozenset[int]) -> QuerySet[Any]:
        """The rows that somebody who is limited to these business systems sees."""
        if not self.system_lookup:
            return rows.none()
        return rows.filter(**{f"{self.system_lookup}__in": system_ids})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        system_ids = person_limits.ids_of(request)
        return rows if system_ids is None else self.limited_rows(rows, system_ids)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is None and person_limits.is_limited(request):
            # Django would redirect to the index, which shows the whole platform.
            raise Http404(_("There is no such row in your business systems."))
        return row

    def _is_open(self, request: HttpRequest, answers_limited_people: bool) -> bool:
        """True if the person is not limited to business systems, or limited people may do it."""
        return answers_limited_people or not person_limits.is_limited(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_open = self._is_open(request, bool(self.limited_views))
        return is_open and super().has_view_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_open = self._is_open(request, self.limited_may_change)
        return is_open and super().has_change_permission(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_open = self._is_open(request, "add_view" in self.limited_views)
        return is_open and super().has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_open = self._is_open(request, "delete_view" in self.limited_views)
        return is_open and super().has_delete_permission(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        is_limited = bool(self.limited_readonly) and person_limits.is_limited(request)
        return [*fields, *self.limited_readonly] if is_limited else fields

    def get_list_filter(self, request: HttpRequest) -> Any:
        """The filters; limited people do not get those that name rows of other tables."""
        filters = super().get_list_filter(request)
        if not person_limits.is_limited(request):
            return filters
        relations = {field.name for field in self.opts.get_fields() if field.is_relation}

        def is_own(list_filter: Any) -> bool:
            is_pair = isinstance(list_filter, tuple | list)
            name, kind = list_filter if is_pair else (list_filter, list_filter)
            if getattr(kind, "keeps_to_limit", False):
                return True
            return name not in relations and not getattr(kind, "names_systems", False)

        return [list_filter for list_filter in filters if is_own(list_filter)]

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        return with_controls_check(super().formfield_for_dbfield(db_field, request, **kwargs))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if field is not None and person_limits.is_limited(request):
            field.queryset = limited_choices(field.queryset, request)
            # A row without a system would be everybody's.
            field.required = field.required or db_field.related_model is Biz
        if field is not None and field.required and db_field.related_model is Biz:
            rows: Any = field.queryset
            ids = rows.values_list("pk", flat=True)[:2]
            field.initial = ids[0] if len(ids) == 1 else None
        return field

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_manytomany(db_field, request, **kwargs)
        if field is not None and person_limits.is_limited(request):
            field.queryset = limited_choices(field.queryset, request)
        return field

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, *args, **kwargs)
        except IntegrityError:
            # Since the form was validated, the same name was stored. Now the form names the field.
            return super().changeform_view(request, object_id, *args, **kwargs)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        if person_limits.is_limited(request):
            context["show_history"] = False  # that page names other people's changes
        return super().render_change_form(request, context, *args, **kwargs)

    def has_operate_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """True if the person may operate these rows or change them; for actions that change no
        setting."""
        label, model = self.opts.app_label, self.opts.model_name
        return self._is_open(request, bool(self.limited_views)) and any(
            request.user.has_perm(f"{label}.{verb}_{model}") for verb in ("operate", "change")
        )

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """For an existing row save only the columns that the form changes: a daemon may have
        changed other columns since the row was read."""
        if not change:
            super().save_model(request, obj, form, change)
            return
        columns = {field.name for field in self.opts.concrete_fields}
        if changed_columns := columns.intersection(form.changed_data):
            obj.save(update_fields=changed_columns)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Go to the page that the address names in `next`, such as the checklist."""
        url = next_page(request)
        if url and "_save" in request.POST:
            messages.success(request, _("%s was saved.") % obj)
            return redirect(url)
        return super().response_add(request, obj, post_url_continue)

    # -- the audit log ---------------------------------------------------------------------------
    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """The entry of the audit log is saved in the row's transaction."""
        super().save_related(request, form, formsets, change)
        changes = self.audit_changes(form, change)
        for formset in formsets:
            changes |= auditing.of_formset(formset)
        if changes or not change:
            action = self.audit_action(form, change)
            audit(request, action, self.audit_target(form.instance), changes=changes)

    def audit_action(self, form: Any, change: bool) -> str:
        return self.audit_action_name("changed" if change else "created")

    def audit_changes(self, form: Any, change: bool) -> dict[str, Any]:
        return auditing.of_form(form, change)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        audit(request, self.audit_action_name("deleted"), self.audit_target(obj))
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            for row in queryset:
                audit(request, self.audit_action_name("deleted"), self.audit_target(row))
            super().delete_queryset(request, queryset)


def limited_choices(rows: Any, request: HttpRequest) -> QuerySet[Any]:
    """The rows that a limited person may choose in a form's field: the rows of their own list."""
    nothing: QuerySet[Any] = rows.none()
    if not admin.site.is_registered(rows.model):
        return nothing
    model_admin = admin.site.get_model_admin(rows.model)
    if not model_admin.has_view_permission(request):
        return nothing
    keys = model_admin.get_queryset(request).order_by().values("pk")
    choices: QuerySet[Any] = rows.filter(pk__in=keys)
    return choices
