"""RQ: work orders put, claimed and done; the queues' names; who may take from one."""
