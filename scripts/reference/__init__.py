"""Pages of `docs/` that are written from the code: `make docs` writes them, a test compares them.

bulk_actions   every action of a bulk job, from the flows
configuration  every environment variable, from the calls of `env` and the comments above them
data_model     every table, from Django's registry of models
metrics        every metric, from its declaration, with its alerts
runbook        each alert in English and Chinese, from `runbooks.md` of the platform and the flows
"""
