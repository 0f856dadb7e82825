// The receiver's side: is this delivery genuine, and what does it say?

import { Webhook } from "standardwebhooks";
import type { AnyEvents, EventType } from "./events.js";

/** The delivery is not genuine, is too old, or cannot be read: answer it with 401. */
export class WebhookVerificationError extends Error {
  override name = "WebhookVerificationError";
}

/** An event as it was delivered, of any of the event types in `E`. */
export type Delivery<E extends object = AnyEvents> = {
  [T in EventType<E>]: {
    /** The same in every repeat: drop what you have seen. */
    id: string;
    type: T;
    timestamp: Date;
    data: E[T];
    /**
     * The key of the system that published it; "" when there is none. The signature does not cover
     * it.
     */
    idempotencyKey: string;
    /** The system that published it, `/systems/orders`; "" unless it came as a CloudEvent. */
    source: string;
  };
}[EventType<E>];

/** Headers of fetch, of Node's `request.headers`, or of any framework. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;

/**
 * The delivery, if its signature fits the secret (`whsec_…`) and is at most five minutes old; in the
 * format of Standard Webhooks, or a CloudEvent, structured or binary.
 *
 * `body` is the request's body as it came, before anything parses it. `prefix` is the beginning of
 * the headers' names, if another one was set for the consumer. The signature covers the body, the id
 * and the time of the attempt: of a binary CloudEvent, whose type, source and time are headers, only
 * the payload.
 *
 * Throws `WebhookVerificationError`: answer it with 401.
 */
export function verify<E extends object = AnyEvents>(
  headers: HeadersLike,
  body: string | Uint8Array,
  secret: string,
  { prefix = "webhook" }: { prefix?: string } = {},
): Delivery<E> {
  const header = reader(headers);
  const id = header(`${prefix}-id`);
  const signed = {
    "webhook-id": id,
    "webhook-timestamp": header(`${prefix}-timestamp`),
    "webhook-signature": header(`${prefix}-signature`),
  };
  const webhook = new Webhook(secret);
  try {
    const text = typeof body === "string" ? body : decoded(body);
    webhook.verify(text, signed, { jsonParse: false });
    const idempotencyKey = header(`${prefix}-idempotency-key`);
    return { id, idempotencyKey, ...contentOf(header, JSON.parse(text)) } as Delivery<E>;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new WebhookVerificationError(reason, { cause: error });
  }
}

type Reader = (name: string) => string;

function reader(headers: HeadersLike): Reader {
  if (headers instanceof Headers) return (name) => headers.get(name) ?? "";
  const lower = new Map(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value ?? "")]),
  );
  return (name) => lower.get(name.toLowerCase()) ?? "";
}

// Exactly what was signed: a byte order mark is kept, bytes that are no UTF-8 are refused.
function decoded(body: Uint8Array): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
}

function contentOf(header: Reader, document: unknown) {
  if (header("ce-specversion")) {
    const timestamp = new Date(header("ce-time"));
    return { type: header("ce-type"), source: header("ce-source"), timestamp, data: document };
  }
  const event = document as Record<string, unknown>;
  const isCloudEvent = header("content-type").startsWith("application/cloudevents+json");
  return {
    type: String(event.type),
    source: isCloudEvent ? String(event.source) : "",
    timestamp: new Date(String(isCloudEvent ? event.time : event.timestamp)),
    data: event.data,
  };
}
