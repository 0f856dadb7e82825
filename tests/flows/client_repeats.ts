// Answers that are lost, or those of a proxy: what msgplatform-client repeats, and its errors. It runs
// where only the client is installed.
import { deepStrictEqual as equal, rejects, throws } from "node:assert";
import {
  Client,
  NotFound,
  NotThePlatform,
  Unreachable,
  UnexpectedAnswer,
} from "msgplatform-client";

type Answer = () => Promise<Response>;
type Put = (path: string, options: object) => Promise<unknown>;

const good: Answer = async () => Response.json({ id: "1", outcome: "created" }, { status: 202 });
const ofAProxy: Answer = async () => new Response("", { status: 520 });
const ofAnother: Answer = async () => new Response("<p>hello");
const didNothing: Answer = async () =>
  Response.json({ type: "/problems/unavailable" }, { status: 503 });
const lost: Answer = async () => {
  throw new TypeError("fetch failed", { cause: new Error("other side closed") });
};

/** A client that gets these answers, and the bodies of its requests. */
function clientWith(...answers: Answer[]): { client: Client; bodies: unknown[] } {
  const bodies: unknown[] = [];
  const send = (_address: unknown, init?: { body?: unknown }) => {
    bodies.push(init?.body);
    return answers.shift()!();
  };
  return { client: new Client("http://127.0.0.1:40", "mp_test", { fetch: send }), bodies };
}

function put(client: Client, path: string, headers: object = {}): Promise<unknown> {
  return (client.api.PUT as unknown as Put)(path, { body: {}, headers });
}

const publisher = clientWith(ofAProxy, good);
equal((await publisher.client.publish("a.b", 1)).outcome, "created");
equal(publisher.bodies.length, 2);
equal(new Set(publisher.bodies).size, 1); // under the same key

const answeredOnce: [string, object][] = [
  ["/api/v1/consumers/a", { "If-None-Match": "*" }],
  ["/api/v1/consumers/a", { "If-Match": '"1"' }],
  ["/api/v1/platform?prune=true", {}],
];
for (const [path, headers] of answeredOnce) {
  const { client, bodies } = clientWith(lost, good);
  await rejects(put(client, path, headers), Unreachable);
  equal(bodies.length, 1);
}
const repeated: [Answer, string][] = [
  [didNothing, "/api/v1/platform"],
  [lost, "/api/v1/platform?dry_run=true"],
  [lost, "/api/v1/consumers/a"],
];
for (const [answer, path] of repeated) {
  const { client, bodies } = clientWith(answer, good);
  await put(client, path);
  equal(bodies.length, 2);
}

// Nothing is there any more: the first one has deleted it.
const nothingThere: Answer = async () =>
  Response.json({ type: "/problems/not-found", title: "Not found" }, { status: 404 });
const remove = (client: Client) =>
  (client.api.DELETE as unknown as Put)("/api/v1/consumers/a", {});
for (const first of [lost, ofAProxy]) {
  await remove(clientWith(first, nothingThere).client);
}
await rejects(remove(clientWith(nothingThere).client), NotFound);

const page: Answer = async () =>
  new Response("<html>Sign in", { headers: { "content-type": "text/html; charset=utf-8" } });
await rejects(clientWith(page).client.publish("a.b", 1), (error: unknown) => {
  return error instanceof NotThePlatform && !error.isPermanent;
});
const oneVerdict: Answer = async () =>
  Response.json({ results: [{ outcome: "created", id: "1" }] });
const events = [1, 2].map((payload) => ({ event_type: "a.b", payload }));
await rejects(clientWith(oneVerdict).client.publishMany(events), UnexpectedAnswer);

// A line on which the time limit is over before a large body has been sent.
const slowly: typeof fetch = (_address, init) =>
  new Promise((resolve, reject) => {
    init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason));
    setTimeout(() => resolve(good()), 1000);
  });
const slow = new Client("http://127.0.0.1:40", "mp_test", {
  fetch: slowly,
  patience: 0,
  timeout: 0.1,
});
await rejects(slow.publish("a.b", 1), Unreachable);
await slow.publish("a.b", "\u540d".repeat(100_000));

// From a file, from a page, from an editor of Windows; and keys that are none.
for (const key of [" mp_test\r\n", "\ufeffmp_test", "mp_test\u200b"]) {
  new Client("http://127.0.0.1:40", key);
}
for (const key of ["", "mp_s3cret\nx", "mp_s3cret x", "mp_s3cr\u00e9t", "mp_s3cret\0"]) {
  throws(
    () => new Client("http://127.0.0.1:40", key),
    (error: Error) => error instanceof TypeError && !error.message.includes("s3cr"),
  );
}

await rejects(clientWith(ofAnother).client.messages().next(), UnexpectedAnswer);
console.log("repeated as documented");
