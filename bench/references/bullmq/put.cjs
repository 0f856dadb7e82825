// Queue a job for each line of a file, `ID BODY`: what a worker starts from; not measured.
//
//   node put.cjs --redis SOCKET --url URL --bodies FILE
"use strict";

const fs = require("node:fs");
const { openQueue, readOptions } = require("./deliveries.cjs");

const PAGE = 1000;

async function main() {
  const { redis, url, bodies } = readOptions("redis", "url", "bodies");
  const queue = openQueue(redis);
  const lines = fs.readFileSync(bodies, "utf8").split("\n");
  for (let start = 0; start < lines.length; start += PAGE) {
    const jobs = lines.slice(start, start + PAGE).map((line) => {
      const [id] = line.split(" ", 1);
      return { name: "event", data: { url, id, body: line.slice(id.length + 1) } };
    });
    await queue.addBulk(jobs);
  }
  await queue.close();
}

main();
