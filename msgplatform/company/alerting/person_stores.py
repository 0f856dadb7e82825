"""The sent alerts, whose texts may name a person."""

from django.utils.translation import gettext_lazy as _

from msgplatform.company.alerting.models import AlertMessage
from msgplatform.core.person.stores import text_store

stores = [
    text_store("alert_messages", _("sent alerts"), AlertMessage, ("title", "text", "error")),
]
