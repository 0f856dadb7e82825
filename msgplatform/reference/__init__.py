"""Pages of `docs/` that are written from the code: `make docs` writes them, a test compares them.

configuration  every environment variable, from the calls of `env` and the comments above them
data_model     every table, from Django's registry of models
runbook        each alert in English and Chinese, from `runbooks.md` of the platform and the flows
"""
