"""The admin's base classes, and the admin of what all flows share.

base         ModelAdmin, its lists and pages
versions     two people who change a row at once
auditing     the audit log: who changed what, before and after
confirmation  actions that ask again who a person is
rows         rows that only the platform writes: lists of any size, pages instead of forms
filters      list filters for tables of any size
pages        pages beside lists and forms; forms that send something; new secrets, shown once
sandbox_pages  the pages of a kind of sandbox
fields       form fields
resource_admin  the form of what people set up, made from its resource
cells        marks, links and second lines in lists
chart        charts over time: their numbers
platform/    the admin of systems and keys, people, jobs, alerts, the audit log

Only this package and `company/signing_in` import the theme: flows import its classes from here.
"""

from unfold.widgets import (
    UnfoldAdminPasswordWidget as PasswordInput,
    UnfoldAdminSelectWidget as Select,
    UnfoldAdminTextareaWidget as Textarea,
    UnfoldAdminTextInputWidget as TextInput,
)

from msgplatform.doors.admin import cells
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.admin.base import (
    AdminPage,
    HealthList,
    ModelAdmin,
    PlainList,
    limited_choices,
    next_page,
    sees_personal,
)
from msgplatform.doors.admin.confirmation import Confirmed, confirmed
from msgplatform.doors.admin.filters import (
    AutocompleteFilter,
    ChoiceFilter,
    IdTimeFilter,
    MomentFilter,
    PickFilter,
    RowSelect,
    row_id,
)
from msgplatform.doors.admin.pages import SecretPageAdmin
from msgplatform.doors.admin.platform import alerts, audit_log, jobs, people, systems  # noqa: F401
from msgplatform.doors.admin.resource_admin import ResourceAdmin, ResourceForm
from msgplatform.doors.admin.rows import ReadOnlyAdmin, RowsAdmin

__all__ = [
    "AdminPage", "AutocompleteFilter", "ChoiceFilter", "Confirmed", "HealthList", "IdTimeFilter",
    "ModelAdmin", "MomentFilter", "PasswordInput", "PickFilter", "PlainList", "ReadOnlyAdmin",
    "ResourceAdmin", "ResourceForm", "RowSelect", "RowsAdmin", "SecretPageAdmin", "Select",
    "TextInput", "Textarea", "audit", "cells", "confirmed", "limited_choices", "next_page",
    "row_id", "sees_personal",
]  # fmt: skip
