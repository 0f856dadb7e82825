// Parts that all programs of this folder have in common: the queue, the options, the counter.
"use strict";

const fs = require("node:fs");
const { parseArgs } = require("node:util");
const { Queue } = require("bullmq");

const QUEUE = "deliver";
// Retries as BullMQ's guide has them: exponential, from a second on. A job that has ended well is
// deleted at once, and one that has failed for good is kept.
const JOB = {
  attempts: 8,
  backoff: { type: "exponential", delay: 1000 },
  removeOnComplete: true,
};

function readOptions(...names) {
  const options = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
  return parseArgs({ options }).values;
}

// `maxRetriesPerRequest: null` is what BullMQ requires of a worker's connection.
function connection(socket) {
  return { path: socket, maxRetriesPerRequest: null };
}

function openQueue(socket) {
  return new Queue(QUEUE, { connection: connection(socket), defaultJobOptions: JOB });
}

// The first number of a mapped file, which the bench reads: see bench/harness/programs/progress.py.
class Progress {
  constructor(file) {
    this.file = fs.openSync(file, "r+");
    this.buffer = Buffer.alloc(8);
    this.count = 0n;
  }

  add(units) {
    this.count += BigInt(units);
    this.buffer.writeBigInt64LE(this.count);
    fs.writeSync(this.file, this.buffer, 0, 8, 0);
  }
}

module.exports = { QUEUE, Progress, connection, openQueue, readOptions };
