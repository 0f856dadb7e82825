-- The outbox of a business system: MariaDB 10.6 or later, MySQL 8.0.13 or later.
--
-- Load it into the database that holds your business tables, so that one transaction covers both:
--     mysql shop < notify/agent/ddl/mysql.sql
-- Behind a sharding proxy: into each physical database, with an Agent for each.
--
-- All that an INSERT needs is event_type and payload. Leave created_at and next_at to their
-- defaults: they are UTC by this server's clock, whatever the time zone of your connection.

CREATE TABLE IF NOT EXISTS outbox (
    id BIGINT NOT NULL AUTO_INCREMENT,
    -- The idempotency key: 1 to 128 visible ASCII characters. The same key with the same content is
    -- accepted once; with another content the later row goes to outbox_dead. It is no unique key
    -- here: a repeat must neither fail nor block your transaction.
    msg_key VARCHAR(128) NOT NULL DEFAULT (UUID()),
    -- Letters, digits and _ - : / in parts joined by dots: order.paid
    event_type VARCHAR(128) NOT NULL,
    -- Optional, for subscriptions that want a part only: letters, digits and _ . : -
    channel VARCHAR(64) NOT NULL DEFAULT '',
    -- JSON text, at most 256 KiB. Not the type JSON: that would change the bytes.
    payload MEDIUMTEXT NOT NULL,
    -- Optional: the trace that the event goes on in (W3C Trace Context).
    traceparent VARCHAR(55) NOT NULL DEFAULT '',
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),

    -- From here on the Agent's own. next_at: not before this time; while the Agent has the row in
    -- hand, the end of its lease. A time in the future publishes later.
    next_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- Which claim has the row in hand; '' when none has.
    claimed_by VARCHAR(32) NOT NULL DEFAULT '',
    -- How often the intake broke on a request that held this row; not counted while it is away.
    attempts INT NOT NULL DEFAULT 0,
    last_error VARCHAR(500) NOT NULL DEFAULT '',
    -- The only index, on purpose: the table stays small, since what is relayed is deleted.
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Rows that the intake refused for good, with the reason. Nothing deletes from here but you.
CREATE TABLE IF NOT EXISTS outbox_dead (
    id BIGINT NOT NULL AUTO_INCREMENT,
    msg_key VARCHAR(128) NOT NULL,
    event_type VARCHAR(128) NOT NULL,
    channel VARCHAR(64) NOT NULL DEFAULT '',
    payload MEDIUMTEXT NOT NULL,
    created_at DATETIME(6) NOT NULL,
    attempts INT NOT NULL DEFAULT 0,
    -- invalid (change the row), conflict (its key was used for another content), or too_large
    code VARCHAR(32) NOT NULL,
    reason VARCHAR(500) NOT NULL,
    died_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
