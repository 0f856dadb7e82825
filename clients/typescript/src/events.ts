// Events to be handed over, and how they become requests.

import type { components } from "./generated/api.js";

type Schemas = components["schemas"];

const MAX_BATCH_ITEMS = 1000;
// The platform's bound is 16 MiB, envelopes included.
const MAX_BATCH_BYTES = 12 * 1024 * 1024;

/** Event types and their payloads: of an interface that `msgplatform-types` has made, or any. */
export type AnyEvents = Record<string, unknown>;
export type EventType<E> = keyof E & string;

/**
 * An event to be published.
 *
 * The `idempotency_key` names what happened, not the attempt to publish it: `order-7-paid`. Without
 * one each call of `publishMany` gives it a key, so that repeats by the client are no second event; a
 * second call would be.
 */
export type NewEvent<E extends object = AnyEvents> = {
  [T in EventType<E>]: {
    event_type: T;
    payload: E[T];
    channel?: string;
    idempotency_key?: string;
  };
}[EventType<E>];

/** An idempotency key for what has no name of its own. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The events in their order, in requests that the platform takes. */
export async function* batches<E extends object>(
  events: Iterable<NewEvent<E>> | AsyncIterable<NewEvent<E>>,
): AsyncGenerator<Schemas["PublishBatchRequest"]> {
  let messages: Schemas["PublishRequest"][] = [];
  let bytes = 0;
  for await (const event of events) {
    const size = new TextEncoder().encode(JSON.stringify(event.payload) ?? "").length;
    if (messages.length === MAX_BATCH_ITEMS || (bytes > 0 && bytes + size > MAX_BATCH_BYTES)) {
      yield { messages };
      messages = [];
      bytes = 0;
    }
    messages.push({ ...event, idempotency_key: event.idempotency_key || newKey() });
    bytes += size;
  }
  if (messages.length > 0) yield { messages };
}
