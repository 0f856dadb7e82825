"""CRM sync in the console.

landing_pages  what people fill in, with a link to the page
leads          the hive, read only
"""

from crmsync.admin import landing_pages, leads

__all__ = ["landing_pages", "leads"]
