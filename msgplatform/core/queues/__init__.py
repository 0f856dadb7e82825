"""RQ: work orders that are put, claimed and done; names and owners of queues."""
