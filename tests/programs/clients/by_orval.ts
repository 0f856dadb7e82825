// Uses the client that orval has made. Prints the id of a message.
import * as api from "./generated.js";

declare const process: { env: { MSGPLATFORM_KEY: string } };

const by = (key: string): RequestInit => ({ headers: { Authorization: `Bearer ${key}` } });

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const manager = by(process.env.MSGPLATFORM_KEY);
const system = await api.systemsUpdate("orders", { title: "Orders" }, manager);
check(system.status === 201, system);
const url = "https://warehouse.example/hooks";
const consumer = await api.consumersUpdate("warehouse", { url }, manager);
check(consumer.status === 201, consumer);
const wanted = { event_types: ["order.*"], timeout: 5, schedule: [5, 300] };
const subscription = await api.subscriptionsUpdate("orders", "warehouse", wanted, manager);
check(subscription.status === 201, subscription);
check(subscription.data.name === "orders/warehouse", subscription);
for (const example of [{ a: 1 }, [1, 2], "text", null]) {
  await api.eventTypesUpdate("order.paid", { example }, manager);
  const stored = await api.eventTypesRetrieve("order.paid", manager);
  check(stored.status === 200, stored);
  check(JSON.stringify(stored.data.example) === JSON.stringify(example), stored);
}
const scopes = ["events:write", "events:read", "feed:write", "feed:read"];
const key = await api.systemsKeysUpdate("orders", "app", { scopes }, manager);
check(key.status === 201, key);
const orders = by(key.data.key);

const sent = { event_type: "order.paid", payload: { order: 7 } };
const message = await api.messagesCreate(sent, orders);
check(message.status === 202, message);
const shown = await api.messagesRetrieve(message.data.id, { expand: "payload" }, orders);
check(shown.status === 200 && JSON.stringify(shown.data.payload) === '{"order":7}', shown);
const list = await api.messagesList({}, orders);
check(list.status === 200 && list.data.results[0]?.id === message.data.id, list);
const post = await api.feedPostsCreate({ uid: "ann", data: "hello" }, orders);
check(post.status === 202, post);
const edited = await api.feedPostsPartialUpdate(post.data.id, { data: "good night" }, orders);
check(edited.status === 200, edited);
const bodiless = [
  await api.feedTimelinesReadCreate("ben", { up_to: post.data.id }, orders),
  await api.feedPostsDestroy(post.data.id, orders),
  await api.eventTypesDestroy("order.paid", manager),
  await api.subscriptionsDestroy("orders", "warehouse", manager),
  await api.systemsKeysDestroy("orders", "app", manager),
  await api.systemsDestroy("orders", manager),
];
for (const answer of bodiless) check(answer.status === 204, answer);
console.log(message.data.id);
