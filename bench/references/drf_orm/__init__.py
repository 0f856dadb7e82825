"""The reference for intake: one DRF view over a ModelSerializer that ends in `save()`.

What ours does, it does too: the same Bearer key (SHA-256, prefix looked up, owner and scope
checked), the same rules for every field, the idempotency key unique by the database with 200 for a
repeat and 409 for another payload, an answer only after the commit, a server of the same kind with
one worker. One row a message instead of our two. Two settings:

- `default_settings`: what `startproject` and DRF give, with MariaDB or SQLite as the database:
  all of startproject's middleware, a database connection a request (CONN_MAX_AGE 0), DRF's own
  parsers, renderers and negotiation, the key looked up in the database; `transaction.atomic()`
  around the save, as Django's documentation shows; granian without options.
- `tuned_settings`: what one does about it: persistent connections, the key cached for 30 s, no
  middleware but the two that an API needs, JSON only, the ids from the database's INSERT in
  autocommit (no BEGIN and COMMIT of their own), and granian with 64 threads.
"""
