"""The tables that all flows share: callers, alerts, failures, counters, people of the
console, the audit log, the objects that platform files keep. A feature's are in its `models`."""

from msgplatform.models.alerts import Alert, AlertNews
from msgplatform.models.counters import DayCounter, HourCounter, MinuteCounter
from msgplatform.models.failures import Acknowledgement, FailureGroup
from msgplatform.models.internal import CellRecord, IdNode, KeptObject, MessageTrace
from msgplatform.models.people import AuditLog, PersonLimit, Preferences, Role, SavedFilter
from msgplatform.models.systems import ApiKey, Biz

__all__ = [
    "Acknowledgement", "Alert", "AlertNews", "ApiKey", "AuditLog", "Biz",
    "CellRecord", "DayCounter", "FailureGroup", "HourCounter", "IdNode", "KeptObject",
    "MessageTrace", "MinuteCounter", "PersonLimit", "Preferences", "Role", "SavedFilter",
]  # fmt: skip
