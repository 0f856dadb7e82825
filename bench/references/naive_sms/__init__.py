"""SMS as one would write it first: the same keys in Redis, a call for each step of each message.

    views       POST /api/v1/sms/batch: authenticate, validate, then for each message its id, its
                idempotency key, its hash and its place in the list: four calls
    sender      takes an id, sends its Submit, waits for the Submit_Resp
    receiver    takes a Report, writes it down, answers it
    forwarder   takes an id, POSTs its signed event, waits for 200
    pump        takes an id, saves its row in the archive, deletes its keys

What ours does, it does too: the same API key, rules for every field, idempotency keys kept for 24
hours, the same Redis with its AOF, an answer only when a message is there, every pop a move into a
list of what is in hand (BLMOVE), the same Submits by the same codec, the same body and signature of
an event over a connection that stays open, the same columns of `sgip_mt`, each row committed. One
process for each role, as ours; the web server is granian with 16 threads, as ours. Every pop
blocks: nothing sleeps, nothing polls.

With `--rows` the forwarder and the pump leave the same rows as ours: the event, its delivery and
its attempt in Notify's tables, a row for the Submit and one for the Report in the archive. Without
it an event goes to the subscriber at once, and the archive has only the message.

What it does less: nothing is sent again, not after a crash and not after a refusal; no statistics,
no long texts, no routing, no speed limit, no window.
"""
