"""Adapters: how CRM sync speaks to each kind of CRM; used by `run_sync_handler` and the console.

base           the contract: class CRMAdapter, with `records` and `settings`
outcomes       the outcomes of sending a record: a small closed set
registry       adapters by name, including those of installed packages
client         HTTP: requests, the meaning of a status, the base class RestAdapter
sql            any database: INSERT … ON DUPLICATE KEY UPDATE
http           any HTTP/JSON interface, described by its settings
hubspot, salesforce, tryton    the interfaces of these products
"""
