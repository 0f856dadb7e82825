"""The objects that people set up: CRMs, sources, policies; each can be tried before it is saved."""

from crmsync.admin.setup import crms, policies, sources

__all__ = ["crms", "policies", "sources"]
