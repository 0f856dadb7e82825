"""CRM sync's tables: landing pages and the hive, sources and CRMs, operations, recovery."""

from crmsync.models.crms import Crm
from crmsync.models.leads import LandingPage, Lead, LeadIdempotency
from crmsync.models.operations import ExceptionEntry, Item, Operation, Record, RecoveryEntry
from crmsync.models.sources import Policy, Run, Source, Watermark

__all__ = [
    "Crm", "ExceptionEntry", "Item", "LandingPage", "Lead", "LeadIdempotency", "Operation",
    "Policy", "Record", "RecoveryEntry", "Run", "Source", "Watermark",
]  # fmt: skip
