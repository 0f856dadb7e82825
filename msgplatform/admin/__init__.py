"""The admin's base classes, and the admin of what all flows share.

base      ModelAdmin and its kinds, bounded lists, the audit entry
report    pages of statistics, and the same as a CSV file
once      a page that shows a new secret exactly once
cells     marks, links and second lines in lists
rows      lists whose rows have a page instead of a form
fields    form fields
filters   list filters for tables of any size
shared    the registrations: systems, keys, jobs, alerts, counters, audit, users

Nothing else imports the theme: flows import its classes from here.
"""

from unfold.widgets import UnfoldAdminPasswordWidget as PasswordInput
from unfold.widgets import UnfoldAdminSelectWidget as Select
from unfold.widgets import UnfoldAdminTextareaWidget as Textarea
from unfold.widgets import UnfoldAdminTextInputWidget as TextInput

from msgplatform.admin import cells, report
from msgplatform.admin.base import (
    BoundedPaginator,
    ModelAdmin,
    PlainList,
    ReadOnlyAdmin,
    UndeletableAdmin,
    audit,
)
from msgplatform.admin.filters import (
    AutocompleteFilter,
    ChoiceFilter,
    IdTimeFilter,
    PickFilter,
    RowSelect,
    row_id,
)
from msgplatform.admin.once import ShowsSecret
from msgplatform.admin.rows import RowList, RowsAdmin
from msgplatform.admin.shared import ApiKeyForm

__all__ = [
    "ApiKeyForm",
    "AutocompleteFilter",
    "BoundedPaginator",
    "ChoiceFilter",
    "IdTimeFilter",
    "ModelAdmin",
    "PasswordInput",
    "PickFilter",
    "PlainList",
    "ReadOnlyAdmin",
    "RowList",
    "RowSelect",
    "RowsAdmin",
    "Select",
    "ShowsSecret",
    "TextInput",
    "Textarea",
    "UndeletableAdmin",
    "audit",
    "cells",
    "report",
    "row_id",
]
