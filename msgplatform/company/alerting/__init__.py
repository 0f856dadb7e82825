"""Alerts to people: by chat robots, mail, pagers, over the library apprise.

    alert ── turn ──▶ notices ── rule, window, quiet hours ──▶ message ── child process ──▶ people

An alert is a row, and so is all that follows from it: whichever process ends at whichever moment,
another one goes on. apprise is imported in the child process only.

turn        the work of one look: plan, claim, start children, store outcomes
planning    alerts to notices, notices to messages, reminders; when a message may go
matching    which rules are about an alert
outbox      messages that are due: claimed, retried, ended; the alert about a channel that fails
texts       a message in the language of its channel
summary     the weekly summary
heartbeats  addresses that are called while all is well
addresses   the address of a channel: checked, shown without its secrets
child       starting the child process, its time limit, its answer
send        the program of the child process; it imports no Django
robots      chat robots whose answers apprise does not read
"""
