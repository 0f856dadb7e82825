"""RQ: putting, claiming and finishing work orders; names and owners of queues."""
