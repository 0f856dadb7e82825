"""The admin's base classes; `platform` is the admin of what all flows share.

Only this package and `company/signing_in` import the theme: flows import its classes from here.
"""

from unfold.widgets import (
    UnfoldAdminPasswordWidget as PasswordInput,
    UnfoldAdminSelectWidget as Select,
    UnfoldAdminTextInputWidget as TextInput,
)

from msgplatform.doors.admin import cells
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.admin.base import (
    AdminPage,
    HealthList,
    ModelAdmin,
    PlainList,
    Textarea,
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
