"""The tables that all flows share: callers, bulk jobs, alerts and where they go, failures,
counters, people of the console, the audit log, the objects that platform files keep."""

from msgplatform.models.alerts import Alert
from msgplatform.models.alerts_out import (
    AlertChannel,
    AlertMessage,
    AlertNews,
    AlertNotice,
    AlertRule,
)
from msgplatform.models.audit_export import AuditExport
from msgplatform.models.bulk import BulkBatch, BulkJob
from msgplatform.models.cells import CellRecord
from msgplatform.models.counters import DayCounter, HourCounter, MinuteCounter
from msgplatform.models.erasures import Erasure
from msgplatform.models.failures import Acknowledgement, FailureGroup
from msgplatform.models.id_nodes import IdNode
from msgplatform.models.kept_objects import KeptObject
from msgplatform.models.people import AuditLog, PersonLimit, Preferences, Role, SavedFilter
from msgplatform.models.systems import ApiKey, Biz
from msgplatform.models.traces import MessageTrace

__all__ = [
    "Acknowledgement", "Alert", "AlertChannel", "AlertMessage", "AlertNews", "AlertNotice",
    "AlertRule", "ApiKey", "AuditExport", "AuditLog", "Biz", "BulkBatch", "BulkJob", "CellRecord",
    "DayCounter", "Erasure", "FailureGroup", "HourCounter", "IdNode", "KeptObject", "MessageTrace",
    "MinuteCounter", "PersonLimit", "Preferences", "Role", "SavedFilter",
]  # fmt: skip
