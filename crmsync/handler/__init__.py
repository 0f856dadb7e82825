"""`run_sync_handler`: sends work orders to CRMs, and marks the outcome of each record.

handler        DataHandler, the program's loop: which CRMs it serves; the mirror of dead records
crm_worker     the workers of one CRM: threads that claim orders, deliver and mark them, and
               pause a CRM that refuses its credentials
claimed_order  an order that a worker has claimed, and its lease
call_limits    limits on calls: rate, quota, pauses that the CRM asks for, circuit breaker
delivery       an order's records to the CRM, call by call; `answers` has one for each record
adoption       records that people made in the CRM
verdicts       the new state of a record after an answer
marks          the verdicts in the database, in one transaction
statements     orders of which every record was stored, and the recovery log
"""
