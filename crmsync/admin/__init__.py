"""CRM sync in the console.

landing_pages  what people fill in, with a link to the page
leads          the hive, read only
reports        statistics by source, CRM and class of error, and as CSV
"""

from crmsync.admin import landing_pages, leads

__all__ = ["landing_pages", "leads"]
