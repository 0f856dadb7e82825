"""The time for which the encrypted identifiers of erasures are kept, for the page Retention."""

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from msgplatform.company.person_data.models import Erasure
from msgplatform.core.archive import kept
from msgplatform.core.archive.description import DAY

kept_data = [
    kept.of_column(
        _("encrypted identifiers of erasures"), Erasure, "created_at",
        lambda: settings.PERSON_ERASURE_DAYS * DAY, "PERSON_ERASURE_DAYS",
    ),
]  # fmt: skip
