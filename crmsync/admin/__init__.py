"""CRM sync in the console.

landing_pages  what people fill in, with a link to the page
setup          CRMs, sources, policies: forms that can be tried before they are saved
runs           how far each reading of a source is, and that progress as a cell
operations     what was sent in one round, as it is stored, and what the CRM said; calls that
               failed as a whole
recovery       dead records: tried again, corrected, dismissed
request_form   the request of a dead record as a form
rows           names and filters that these lists share
"""

from crmsync.admin import landing_pages, operations, recovery, runs, setup

__all__ = ["landing_pages", "operations", "recovery", "runs", "setup"]
