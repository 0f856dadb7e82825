"""What people set up, as processes know it: landing pages, CRMs, policies."""

from crmsync.directory.crms import Crm, Crms
from crmsync.directory.pages import Page, origins, page
from crmsync.directory.policies import Policies, Policy

__all__ = ["Crm", "Crms", "Page", "Policies", "Policy", "origins", "page"]
