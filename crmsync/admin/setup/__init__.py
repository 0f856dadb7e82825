"""What people set up: CRMs, sources and policies; each can be tried before it is saved.

crms           list with the live state, form, test, resume
crm_form       the form of a CRM, and the help with its kind's settings
crm_health     live state and queues of all CRMs on a page, read at once
test_leads     one made-up lead, sent to a CRM at once; the calls and their answers
sources        list, form, test
policies       list, form, page of one: run now, watermark, last runs
policy_form    the form of a policy
policy_health  what pollers report of all policies on a page, and their last runs
preview        what a policy would do to the newest rows
trial          the page of a policy on which it is tried: a sample, a dry run, the fields of both
probes         questions to other systems, with a deadline
"""

from crmsync.admin.setup import crms, policies, sources

__all__ = ["crms", "policies", "sources"]
