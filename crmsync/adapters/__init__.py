"""Adapters: how CRM sync speaks to each kind of CRM; used by `run_sync_handler` and the console.

base           the contract: the adapter's class, with `records` and `settings`
outcomes       what a CRM says of a record: a small closed set
registry       adapters by name, third parties' included
sql            any database: INSERT … ON DUPLICATE KEY UPDATE
http           any HTTP/JSON interface, described by its settings
hubspot, salesforce, tryton    the interfaces of these products
rest           what the adapters of particular CRMs have in common
client         requests and answers of the adapters that speak HTTP
answers        what an HTTP status means
"""
