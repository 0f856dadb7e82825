// Uses the types that openapi-typescript has made, by openapi-fetch. Prints the id of a message.
import createClient from "openapi-fetch";
import type { paths } from "./generated.js";

declare const process: { env: { MSGPLATFORM_URL: string; MSGPLATFORM_KEY: string } };

const client = (key: string) =>
  createClient<paths>({
    baseUrl: process.env.MSGPLATFORM_URL,
    headers: { Authorization: `Bearer ${key}` },
  });

function data<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

function check(holds: boolean, what: string) {
  if (!holds) throw new Error(what);
}

const manager = client(process.env.MSGPLATFORM_KEY);
data(await manager.PUT("/api/v1/systems/{name}", {
  params: { path: { name: "orders" } },
  body: { title: "Orders" },
}));
data(await manager.PUT("/api/v1/consumers/{name}", {
  params: { path: { name: "warehouse" } },
  body: { url: "https://warehouse.example/hooks" },
}));
const both = { params: { path: { system: "orders", consumer: "warehouse" } } };
const subscription = data(await manager.PUT("/api/v1/subscriptions/{system}/{consumer}", {
  ...both,
  body: { event_types: ["order.*"], timeout: 5, schedule: [5, 300] },
}));
check(subscription.name === "orders/warehouse", "the subscription");
const paid = { params: { path: { name: "order.paid" } } };
for (const example of [{ a: 1 }, [1, 2], "text", null]) {
  data(await manager.PUT("/api/v1/event-types/{name}", { ...paid, body: { example } }));
  const stored = data(await manager.GET("/api/v1/event-types/{name}", paid));
  check(JSON.stringify(stored.example) === JSON.stringify(example), "the example");
}
const app = { params: { path: { system: "orders", name: "app" } } };
const key = data(await manager.PUT("/api/v1/systems/{system}/keys/{name}", {
  ...app,
  body: { scopes: ["events:write", "events:read", "feed:write", "feed:read"] },
}));
if (!("key" in key)) throw new Error("the key was there");
const orders = client(key.key);

const message = data(await orders.POST("/api/v1/messages", {
  body: { event_type: "order.paid", payload: { order: 7 } },
}));
const shown = data(await orders.GET("/api/v1/messages/{id}", {
  params: { path: { id: message.id }, query: { expand: "payload" } },
}));
check(JSON.stringify(shown.payload) === '{"order":7}', "the payload");
const list = data(await orders.GET("/api/v1/messages"));
check(list.results.length === 1 && list.results[0]?.id === message.id, "the list");
const post = data(await orders.POST("/api/v1/feed/posts", { body: { uid: "ann", data: "hello" } }));
const one = { params: { path: { id: post.id } } };
data(await orders.PATCH("/api/v1/feed/posts/{id}", { ...one, body: { data: "good night" } }));
const bodiless = [
  await orders.POST("/api/v1/feed/timelines/{uid}/read", {
    params: { path: { uid: "ben" } },
    body: { up_to: post.id },
  }),
  await orders.DELETE("/api/v1/feed/posts/{id}", one),
  await manager.DELETE("/api/v1/event-types/{name}", paid),
  await manager.DELETE("/api/v1/subscriptions/{system}/{consumer}", both),
  await manager.DELETE("/api/v1/systems/{system}/keys/{name}", app),
  await manager.DELETE("/api/v1/systems/{name}", { params: { path: { name: "orders" } } }),
];
for (const answer of bodiless) check(answer.response.status === 204, answer.response.url);
console.log(message.id);
