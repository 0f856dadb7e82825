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

export interface VerifyOptions {
  /** The beginning of the headers' names, if another one was set for the consumer. */
  prefix?: string;
  /**
   * For subscriptions with the format of binary CloudEvents: type, source and time are in headers
   * then, which the signature does not cover.
   */
  isBinary?: boolean;
}

/**
 * The delivery, if its signature fits the secret (`whsec_…`) and is at most five minutes old.
 *
 * `body` is the request's body as it came, before anything parses it: in the format of Standard
 * Webhooks, or a structured CloudEvent; with `isBinary` the payload of a binary one.
 *
 * Throws `WebhookVerificationError`: answer it with 401. A genuine body in another format throws it,
 * too.
 */
export function verify<E extends object = AnyEvents>(
  headers: HeadersLike,
  body: string | Uint8Array,
  secret: string,
  { prefix = "webhook", isBinary = false }: VerifyOptions = {},
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
    const content = isBinary ? ofBinary(header, JSON.parse(text)) : ofDocument(JSON.parse(text));
    return { id, idempotencyKey: header(`${prefix}-idempotency-key`), ...content } as Delivery<E>;
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

interface Content {
  type: string;
  source: string;
  timestamp: Date;
  data: unknown;
}

/** Whether it is a CloudEvent is read from the body, which is signed, and not from a header. */
function ofDocument(document: unknown): Content {
  const event = Object(document) as Record<string, unknown>;
  const isCloudEvent = "specversion" in event;
  const { type, data, source = "" } = event;
  const time = isCloudEvent ? event.time : event.timestamp;
  if (typeof type !== "string" || typeof source !== "string" || !("data" in event)) throw unreadable();
  return { type, source: isCloudEvent ? source : "", timestamp: dateOf(time), data };
}

function ofBinary(header: Reader, data: unknown): Content {
  const type = header("ce-type");
  if (!type) throw unreadable();
  return { type, source: header("ce-source"), timestamp: dateOf(header("ce-time")), data };
}

function dateOf(time: unknown): Date {
  const date = new Date(String(time));
  if (Number.isNaN(date.getTime())) throw unreadable();
  return date;
}

function unreadable(): Error {
  return new Error("Genuine, and not in this format: binary CloudEvents need isBinary");
}
