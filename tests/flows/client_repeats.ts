// Answers that are lost, or those of a proxy: what msgplatform-client repeats, and its errors. It runs
// where only the client is installed.
import { deepStrictEqual as equal, rejects } from "node:assert";
import { Client, Unreachable, UnexpectedAnswer } from "msgplatform-client";

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

await rejects(clientWith(ofAnother).client.messages().next(), UnexpectedAnswer);
console.log("repeated as documented");
