"""CRM sync's tables: landing pages and the hive, the store of leads."""

from crmsync.models.landing import LandingPage
from crmsync.models.leads import Lead, LeadIdempotency

__all__ = ["LandingPage", "Lead", "LeadIdempotency"]
