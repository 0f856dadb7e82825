"""Publishes one batch after another: `python -m bench.notify.publish_batches …`."""

from bench.harness.programs import messages, worker


def main() -> None:
    parser = worker.options("Call publish_many() again and again.")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--biz", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from notify.intake.intake import Event, publish_many

    number = 0
    while not stop:
        with options.progress.idle():
            keys = [messages.key(options.prefix, number + n) for n in range(options.batch)]
            events = [
                Event(options.biz, messages.EVENT_TYPE, messages.payload(key), key) for key in keys
            ]
        verdicts = publish_many(events)
        if any(verdict.outcome != "created" for verdict in verdicts):
            raise SystemExit(f"not created: {verdicts}")
        number += options.batch
        options.progress.add(options.batch)


if __name__ == "__main__":
    main()
