// The split with BullMQ: a job for each delivery of each message.
//
//   node split.cjs --redis SOCKET --database-socket SOCKET --database NAME --progress FILE
//
// Messages are read 500 at a time with mysql2, a page's 1000 jobs are one `addBulk`, which is one
// pipeline in one MULTI, and the page is marked by one UPDATE. The next page is read while a page
// is added. Subscriptions are read once a page. No row is kept for a delivery.
"use strict";

const mysql = require("mysql2/promise");
const { Progress, openQueue, readOptions } = require("./deliveries.cjs");

const PAGE = 500;
const [ACCEPTED, SPLIT] = [0, 1];
const MESSAGES =
  "SELECT id, biz_id, event_type, payload, created_at FROM biz_msg " +
  `WHERE state = ${ACCEPTED} AND id > ? ORDER BY id LIMIT ${PAGE}`;
const SUBSCRIPTIONS =
  "SELECT s.biz_id, r.url FROM biz_receive s JOIN receive r ON r.id = s.receive_id " +
  "WHERE s.biz_id IN (?)";

let isStopping = false;
process.on("SIGTERM", () => (isStopping = true));

async function main() {
  const options = readOptions("redis", "database-socket", "database", "progress");
  const progress = new Progress(options.progress);
  const queue = openQueue(options.redis);
  // Two connections, so that the next page is read while this one is marked.
  const database = mysql.createPool({
    socketPath: options["database-socket"], user: "root", database: options.database,
    connectionLimit: 2, supportBigNumbers: true, bigNumberStrings: true, dateStrings: true,
  });
  let page = await read(database, "0");
  while (page.length && !isStopping) {
    const next = read(database, page[page.length - 1].id);
    const jobs = await jobsOf(database, page);
    await queue.addBulk(jobs);
    progress.add(jobs.length);
    const ids = page.map((message) => message.id);
    await database.query(`UPDATE biz_msg SET state = ${SPLIT} WHERE id IN (?)`, [ids]);
    page = await next;
  }
  while (!isStopping) await new Promise((resolve) => setTimeout(resolve, 20));
  await queue.close();
  await database.end();
}

async function read(database, last) {
  return (await database.query(MESSAGES, [last]))[0];
}

async function jobsOf(database, page) {
  const systems = [...new Set(page.map((message) => message.biz_id))];
  const [subscriptions] = await database.query(SUBSCRIPTIONS, [systems]);
  return page.flatMap((message) =>
    subscriptions
      .filter((subscription) => subscription.biz_id === message.biz_id)
      .map(({ url }) => ({ name: "event", data: { url, id: message.id, body: body(message) } })),
  );
}

function body({ event_type: type, created_at: createdAt, payload }) {
  const timestamp = `${createdAt.replace(" ", "T")}Z`;
  return `{"type":"${type}","timestamp":"${timestamp}","data":${payload.toString()}}`;
}

main();
