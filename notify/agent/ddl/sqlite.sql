-- The outbox of a business system: SQLite 3.
--
-- Load it into the file that holds your business tables, so that one transaction covers both:
--     sqlite3 shop.db < notify/agent/ddl/sqlite.sql
--
-- All that an INSERT needs is event_type and payload. Leave created_at and next_at to their
-- defaults: times are text in UTC, "2026-11-20 08:00:00.000", and are compared as text.

CREATE TABLE IF NOT EXISTS outbox (
    -- AUTOINCREMENT: a number is not given out again after its row was deleted.
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- The idempotency key: 1 to 128 visible ASCII characters. The same key with the same content is
    -- accepted once; with another content the later row goes to outbox_dead. It is no unique key
    -- here: a repeat must not fail your transaction.
    msg_key VARCHAR(128) NOT NULL DEFAULT (LOWER(HEX(RANDOMBLOB(16)))),
    -- Letters, digits and _ - : / in parts joined by dots: order.paid
    event_type VARCHAR(128) NOT NULL,
    -- Optional, for subscriptions that want a part only: letters, digits and _ . : -
    channel VARCHAR(64) NOT NULL DEFAULT '',
    -- JSON text, at most 256 KiB.
    payload TEXT NOT NULL,
    -- Optional: the trace that the event goes on in (W3C Trace Context).
    traceparent VARCHAR(55) NOT NULL DEFAULT '',
    created_at DATETIME NOT NULL DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'now')),

    -- From here on the Agent's own. next_at: not before this time; while the Agent has the row in
    -- hand, the end of its lease. A time in the future publishes later.
    next_at DATETIME NOT NULL DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'now')),
    -- Which claim has the row in hand; '' when none has.
    claimed_by VARCHAR(32) NOT NULL DEFAULT '',
    -- How often the intake broke on a request that held this row; not counted while it is away.
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error VARCHAR(500) NOT NULL DEFAULT ''
);

-- Rows that the intake refused for good, with the reason. Nothing deletes from here but you.
CREATE TABLE IF NOT EXISTS outbox_dead (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    msg_key VARCHAR(128) NOT NULL,
    event_type VARCHAR(128) NOT NULL,
    channel VARCHAR(64) NOT NULL DEFAULT '',
    payload TEXT NOT NULL,
    created_at DATETIME NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- invalid (change the row), conflict (its key was used for another content), or too_large
    code VARCHAR(32) NOT NULL,
    reason VARCHAR(500) NOT NULL,
    died_at DATETIME NOT NULL DEFAULT (STRFTIME('%Y-%m-%d %H:%M:%f', 'now'))
);
