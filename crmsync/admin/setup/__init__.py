"""What people set up: CRMs, sources, policies; each can be tried before it is saved.

crms           list with the live state, form, test, resume
crm_form       the form of a CRM, and the help with its kind's settings
crm_health     live state and queues of a page's CRMs, read in sets
sources        list, form, test
policies       list, form, page of one: run now, watermark, last runs
policy_form    the form of a policy
trial          a sample, a dry run, the fields of both sides
probes         questions to other systems, with an end
"""

from crmsync.admin.setup import crms, policies, sources

__all__ = ["crms", "policies", "sources"]
