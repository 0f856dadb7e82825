"""The objects that people set up: CRMs, sources, policies; each can be tried before it is saved.

crms           list with the live state, form, test, resume
crm_form       the kinds of CRMs, and the help with the settings of each
sources        list, form, test
policies       list, form, page of one: run now, watermark, last runs
policy_trial   views that try a policy before it is saved: sample, dry run, fields of both sides
preview        reads the newest rows for these trials and tests of sources, without a page
probes         questions to other systems: posted forms, and one made-up lead sent to a CRM at once
"""

from crmsync.admin.setup import crms, policies, sources

__all__ = ["crms", "policies", "sources"]
