"""`run_sync_handler`: sends work orders to CRMs, and marks what became of each record.

handler        DataHandler, the program's loop: which CRMs it serves
crm_lanes      one CRM: as many lanes as it takes calls at a time
lane           a thread with an adapter: takes an order, delivers it, has it marked
hand           the order that a lane has in hand, and its lease
gate           whether a call may go now: limits, pauses that the CRM asks for, circuit breaker
delivery       an order's records to the CRM, call by call; `answers` has one for each record
refusals       whether the CRM refuses its credentials, or a record
verdicts       what an answer makes of a record
marks          the verdicts in the database, in one transaction
recovery_entries   the entries of the recovery log that belong to them
pause          CRMs that refuse their credentials
dead_queue     the mirror of the dead records in Redis
"""
