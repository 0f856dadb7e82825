// Publishes by msgplatform-client while the platform is killed: one by one, and in batches.
// `client_publishers.js COUNT` prints a line for each accepted event: its key and its id.
import { Client } from "msgplatform-client";

const count = Number(process.argv[2]);
// A busy machine starts a web server slowly.
const client = new Client(process.env.MSGPLATFORM_URL!, process.env.MSGPLATFORM_KEY!, { patience: 600 });
const AT_ONCE = 8;
const BATCH = 20;

function accepted(key: string, id: string | undefined): void {
  if (!id) throw new Error(`${key} has no id`);
  process.stdout.write(`${key} ${id}\n`);
}

async function oneByOne(numbers: Iterator<number>): Promise<void> {
  for (let next = numbers.next(); !next.done; next = numbers.next()) {
    const key = `promise-${next.value}`;
    accepted(key, (await client.publish("load.test", { number: next.value }, { key })).id);
  }
}

async function inBatches(): Promise<void> {
  for (let start = 0; start < count; start += BATCH) {
    const events = Array.from({ length: Math.min(BATCH, count - start) }, (_, index) => ({
      event_type: "load.test",
      payload: { number: start + index },
      idempotency_key: `node-batch-${start + index}`,
    }));
    const verdicts = await client.publishMany(events);
    verdicts.forEach((verdict, index) => accepted(events[index]!.idempotency_key, verdict.id));
  }
}

const numbers = Array.from({ length: count }, (_, number) => number).values();
await Promise.all([inBatches(), ...Array.from({ length: AT_ONCE }, () => oneByOne(numbers))]);
