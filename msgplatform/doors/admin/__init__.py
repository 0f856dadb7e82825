"""The admin's base classes, and the admin of what all flows share.

base         ModelAdmin and its kinds, bounded lists
auditing     the audit log: who changed what, before and after
confirmation  actions that ask again who a person is
chart        charts over time: their numbers
pages        pages beside lists and forms; forms that send something; new secrets, shown once
sandbox_pages  the pages of a kind of sandbox
cells        marks, links and second lines in lists
rows         lists whose rows have a page instead of a form; lists of the newest rows of a table
fields       form fields
resource_admin  the form of what people set up, made from its resource
filters      list filters for tables of any size
systems      business systems and API keys
jobs         bulk jobs, counters of minutes
alerts       open alerts, and their history
people       users and groups
audit_log    the list and the page of the audit log

Only this package and `company/signing_in` import the theme: flows import its classes from here.
"""

from unfold.widgets import (
    UnfoldAdminPasswordWidget as PasswordInput,
    UnfoldAdminSelectWidget as Select,
    UnfoldAdminTextareaWidget as Textarea,
    UnfoldAdminTextInputWidget as TextInput,
)

from msgplatform.doors.admin import (  # noqa: F401
    alerts,
    audit_log,
    cells,
    jobs,
    people,
    systems,
)
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.admin.base import (
    AdminPage,
    HealthList,
    ModelAdmin,
    PlainList,
    ReadOnlyAdmin,
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
from msgplatform.doors.admin.resource_admin import ResourceAdmin, ResourceForm
from msgplatform.doors.admin.rows import RowsAdmin

__all__ = [
    "AdminPage", "AutocompleteFilter", "ChoiceFilter", "Confirmed", "HealthList", "IdTimeFilter",
    "ModelAdmin", "MomentFilter", "PasswordInput", "PickFilter", "PlainList", "ReadOnlyAdmin",
    "ResourceAdmin", "ResourceForm", "RowSelect", "RowsAdmin", "SecretPageAdmin", "Select",
    "TextInput", "Textarea", "alerts", "audit", "cells", "confirmed", "limited_choices",
    "next_page", "row_id", "sees_personal",
]  # fmt: skip
