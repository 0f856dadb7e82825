// Uses every method of msgplatform-client once. It runs where only the client is installed.
import { deepStrictEqual as equal, ok } from "node:assert";
import {
  Client,
  KeyConflict,
  NotAuthorized,
  NotFound,
  Refused,
  Throttled,
  Unreachable,
  UnexpectedAnswer,
} from "msgplatform-client";
import type { Events } from "./events.js";

/** The error of this kind with which the call rejects. */
async function errorOf<E extends Error>(
  kind: new (...values: never[]) => E,
  call: Promise<unknown>,
): Promise<E> {
  try {
    await call;
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error("it was accepted");
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

const url = process.env.MSGPLATFORM_URL!;
const key = process.env.MSGPLATFORM_KEY!;
const began = new Date();
const client = new Client(`${url}/`, key);

// More than one page, and more than one batch.
function* many() {
  for (let n = 0; n < 1_200; n += 1) {
    const payload = { number: n, 名: "小米" };
    yield { event_type: "example.many", payload, idempotency_key: `many-${n}` };
  }
}
const verdicts = await client.publishMany(many());
equal(verdicts.map((verdict) => verdict.outcome), Array(1_200).fill("created"));
const ids = verdicts.map((verdict) => verdict.id);
const listed = await all(client.messages({ event_type: "example.many", since: began }));
equal(listed.map((message) => message.id), ids.toReversed());
const again = await client.publishMany([...many()].slice(0, 3));
equal(again.map((verdict) => [verdict.outcome, verdict.id]), ids.slice(0, 3).map((id) => ["duplicate", id]));
const wrong = await client.publishMany([
  { event_type: "no type", payload: 1 },
  { event_type: "example.right", payload: null },
]);
equal(wrong.map((verdict) => verdict.outcome), ["rejected", "created"]);
equal(wrong[0]?.field, "event_type");

const sent = await client.publish("example.one", [1, 2.5, "小米"], { key: "one", channel: "shop-1" });
const repeated = await client.publish("example.one", [1, 2.5, "小米"], { key: "one", channel: "shop-1" });
equal(repeated, { id: sent.id, outcome: "duplicate" });
const [first, second] = [await client.publish("example.one", 1), await client.publish("example.one", 1)];
ok(first.id !== second.id);
const states = await all(client.follow(sent.id, { seconds: 240, every: 0.2 }));
equal(states.at(-1)?.deliveries.map((delivery) => delivery.status), ["delivered"]);
equal((await client.message(sent.id, { withPayload: true })).payload, [1, 2.5, "小米"]);
const delivered = await all(client.messages({ channel: "shop-1", status: "delivered" }));
equal(delivered.map((message) => message.id), [sent.id]);

const conflict = await errorOf(KeyConflict, client.publish("example.one", 2, { key: "one", channel: "shop-1" }));
ok(conflict.isPermanent && conflict.name === "KeyConflict");
const refused = await errorOf(Refused, client.publish("no type", 1));
equal(refused.errors.map((each) => each.field), ["event_type"]);
equal((await errorOf(NotFound, client.message("1"))).kind, "not-found");
// The system has no account, and no landing page.
equal((await errorOf(Refused, client.sendSms("13800000000", "hello"))).status, 400);
equal((await errorOf(Refused, client.sendLead({ appkey: "none", name: "ann" }))).status, 400);

// What has no method of its own.
const { data: post } = await client.api.POST("/api/v1/feed/posts", { body: { uid: "ann", data: "hello" } });
const posts = await all(client.list("/api/v1/feed/posts"));
equal(posts.map((each) => each.id), [post?.id]);
const timeline = client.list("/api/v1/feed/timelines/{uid}", { path: { uid: "ann" } });
equal((await all(timeline)).map((each) => each.id), [post?.id]);

const manager = new Client(url, process.env.MSGPLATFORM_MANAGEMENT_KEY!);
const job = await manager.resend({ ids: sent.id, status: "delivered" }, { rate: 10 });
equal(job.total, 1);
equal((await manager.job(job.id)).action, "resend");

const stranger = new Client(url, "mp_wrong");
ok((await errorOf(NotAuthorized, stranger.publish("example.one", 1))).isPermanent);
const nowhere = new Client("http://127.0.0.1:40", key, { patience: 0 });
const unreachable = await errorOf(Unreachable, nowhere.publish("example.one", 1));
ok(!unreachable.isPermanent && unreachable.message.includes("ECONNREFUSED"), unreachable.message);
const elsewhere = new Client(`${url}/admin`, key);
ok((await errorOf(UnexpectedAnswer, elsewhere.message("1"))).isPermanent);

// A signal ends the pauses; before that no pause is shorter than `Retry-After`, as seconds or a date.
for (const retryAfter of ["3600", new Date(Date.now() + 3_600_000).toUTCString()]) {
  const answer = () => Promise.resolve(new Response("", { status: 429, headers: { "retry-after": retryAfter } }));
  const throttled = new Client(url, key, { fetch: answer, patience: 60 });
  const error = await errorOf(Throttled, throttled.publish("example.one", 1));
  ok(error.retryAfter! > 3_500 && !error.isPermanent);
  const patient = new Client(url, key, { fetch: answer, patience: 7_200 });
  const publishing = patient.publish("example.one", 1, { signal: AbortSignal.timeout(100) });
  equal((await errorOf(DOMException, publishing)).name, "TimeoutError");
}

// Typed events: a wrong payload does not compile.
const typed = new Client<Events>(url, key);
await typed.publish("order.paid", { order: "7", lines: [{ article: "tea" }] });
// @ts-expect-error: the order is a text
await typed.publish("order.paid", { order: 7, lines: [] });
// @ts-expect-error: there is no such event type
await typed.publish("order.payed", { order: "7", lines: [] });
console.log("every method works");
