"""Alerts to people: by chat robots, mail, pagers, over the library apprise.

    alert ── turn ──▶ notices ── rule, window, quiet hours ──▶ message ── child process ──▶ people

An alert is a row, and so is all that follows from it: whichever process ends at whichever moment,
another one goes on. apprise is imported in the child process only.

setup       channels and rules as people set them up; the check of an address
turn        the work of one look: plan, claim, start children, store outcomes; heartbeats, addresses
            that are called while all is well; the weekly summary
planning    which rules are about an alert; alerts to notices, notices to messages, reminders; when
            a message may go
outbox      messages that are due: claimed, sent by child processes, retried, ended; the alert
            about a channel that fails
texts       a message in the language of its channel
send        the program of the child process; it imports no Django
robots      chat robots whose answers apprise does not read
"""
