// Delivery with a BullMQ Worker: as many jobs at once as there are connections to the subscriber.
//
//   node work.cjs --redis SOCKET --connections 64 [--max-stalled 1]
//
// undici's Pool keeps connections open and is the quickest client of Node; the signature is that of
// Standard Webhooks. Anything but 2xx throws, so that BullMQ tries the job again later. On SIGTERM
// jobs in flight are finished.
"use strict";

const { createHmac } = require("node:crypto");
const { Worker } = require("bullmq");
const { Pool } = require("undici");
const { QUEUE, connection, readOptions } = require("./deliveries.cjs");

const SECRET = "a signing secret of 32 bytes ....";
const options = readOptions("redis", "connections", "max-stalled");
const CONNECTIONS = Number(options.connections);
const TIMEOUT = 15_000; // milliseconds, as the other sides have it

const pools = new Map();

function poolOf(origin) {
  let pool = pools.get(origin);
  if (!pool) {
    pool = new Pool(origin, {
      connections: CONNECTIONS, headersTimeout: TIMEOUT, bodyTimeout: TIMEOUT,
    });
    pools.set(origin, pool);
  }
  return pool;
}

async function deliver({ data: { url, id, body } }) {
  const { origin, pathname, search } = new URL(url);
  const timestamp = String(Math.floor(Date.now() / 1000));
  const signature = createHmac("sha256", SECRET).update(`${id}.${timestamp}.${body}`);
  const headers = {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": `v1,${signature.digest("base64")}`,
  };
  const answer = await poolOf(origin).request({
    path: pathname + search, method: "POST", headers, body,
  });
  await answer.body.dump();
  if (answer.statusCode < 200 || answer.statusCode > 299) {
    throw new Error(`HTTP ${answer.statusCode}`);
  }
}

const worker = new Worker(QUEUE, deliver, {
  connection: connection(options.redis),
  concurrency: CONNECTIONS,
  removeOnComplete: { count: 0 },
  maxStalledCount: Number(options["max-stalled"] ?? 1), // BullMQ's default
});
worker.on("error", (error) => console.error(error));
process.on("SIGTERM", async () => {
  await worker.close();
  process.exit(0);
});
