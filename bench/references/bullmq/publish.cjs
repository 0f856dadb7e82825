// Publish events at moments drawn beforehand, each until BullMQ has taken it.
//
//   node publish.cjs --redis SOCKET --url URL --rate 100 --traces FILE --book FILE
//
// A job's id is the message's, so that a repeated `add` makes no second job while the first one is
// kept. Each accepted message is a line of the book, as `bench.storm.publisher` writes it.
// On SIGTERM nothing more is due.
"use strict";

const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const { openQueue, readOptions } = require("./deliveries.cjs");

const { redis, url, rate, traces, book } = readOptions("redis", "url", "rate", "traces", "book");
const lines = fs.readFileSync(traces, "utf8").split("\n");
const out = fs.openSync(book, "a");
const queue = openQueue(redis);
queue.on("error", (error) => console.error(error.message));
let isStopping = false;
process.on("SIGTERM", () => { isStopping = true; });

function now() {
  return Number(process.hrtime.bigint()) / 1e9; // the machine's monotonic clock
}

async function publish(number, due) {
  const id = `m-${number}`;
  const body = `{"n": ${number}, "due": ${due.toFixed(6)}, "trace": "${lines[number]}"}`;
  for (let tries = 1; ; tries += 1) {
    try {
      await queue.add("event", { url, id, body }, { jobId: id, removeOnComplete: { age: 3600 } });
      fs.writeSync(out, `${number} ${due.toFixed(6)} ${now().toFixed(6)} ${tries} ${id}\n`);
      return;
    } catch (error) {
      console.error(`${id}: ${error.message}`);
      await sleep(100);
    }
  }
}

async function main() {
  const open = new Set();
  let due = now();
  for (let number = 0; !isStopping && number < lines.length; number += 1) {
    while (!isStopping && now() < due) await sleep(Math.min(100, Math.max(1, (due - now()) * 1000)));
    if (isStopping) break;
    const call = publish(number, due).finally(() => open.delete(call));
    open.add(call);
    due -= Math.log(1 - Math.random()) / Number(rate);
  }
  await Promise.all(open);
  process.exit(0);
}

main();
