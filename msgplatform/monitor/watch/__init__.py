"""Watches the platform itself: silent programs, unavailable servers, work that waits.

Every daemon runs the watch beside its loop, so that those that live can report those that do not;
the one that holds the lease looks for all. Without the work Redis nobody can hold the lease, and
each daemon reports that Redis. An alert is a row, so an unavailable database raises none:
`/metrics` and the log report it.

watch        the look, and the thread that looks
kinds        the kinds of the platform's own alerts
programs     those that do not run
servers      Redis and its memory, disks, nodes for ids
databases    the cluster of databases: two writers, nodes that are missing
of_flows     work that waits, failures, conditions of flows
unread       what could not be looked up
"""
