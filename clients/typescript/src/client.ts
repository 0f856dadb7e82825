// The client: publishes, sends, follows and lists.

import createClient, { type Client as ApiClient } from "openapi-fetch";
import { UnexpectedAnswer, read } from "./errors.js";
import { type AnyEvents, type EventType, type NewEvent, batches, newKey } from "./events.js";
import type { components, operations, paths } from "./generated/api.js";
import { type ItemOf, type ListParameters, type ListPath, items } from "./lists.js";
import { type RetryOptions, now, retryingFetch, sleep } from "./retries.js";

type Schemas = components["schemas"];
export type Accepted = Schemas["Accepted"];
export type AcceptedSms = Schemas["AcceptedSms"];
export type Job = Schemas["Job"];
export type Message = Schemas["Message"];
export type MessageDetail = Schemas["MessageDetail"];
export type Sms = Schemas["Sms"];
export type Verdict = Schemas["Verdict"];

const FOLLOW_SECONDS = 1; // between two looks at a message
const WAITING = new Set<string>(["pending", "queued", "held"]);
const SMS_UNDER_WAY = new Set<string>(["pending", "submitted", "responded"]);

/** Of every call: ends it, its repeats and its pauses. */
export interface CallOptions {
  signal?: AbortSignal;
}

export interface KeyOptions extends CallOptions {
  /**
   * Names what happened, `order-7-paid`: handed over again with it, it is a `duplicate`. Without a
   * key only the repeats of this one call are.
   */
  key?: string;
}

export interface SmsOptions extends KeyOptions {
  /** Your own; it comes back with every report. */
  reference?: string;
  /** As which account; your default account when left out. */
  account?: string;
  /** Not before this time. */
  schedule_at?: Date;
}

export interface FollowOptions extends CallOptions {
  /** Rejects with `NotEnded` after so many seconds. */
  seconds?: number;
  /** Seconds between two looks. */
  every?: number;
}

type Query = NonNullable<operations["messages_list"]["parameters"]["query"]>;

/** Which events a list has; what is left out allows all. */
export interface MessageFilters extends Omit<Query, "cursor" | "limit" | "since" | "until"> {
  since?: Date;
  until?: Date;
}

/** What is followed has not ended in the seconds that were allowed. */
export class NotEnded extends Error {
  override name = "NotEnded";
}

/**
 * An API key without the blanks and line ends of the file that it is from. Throws a TypeError,
 * without the key: errors get into logs.
 */
function cleanKey(key: string): string {
  const clean = key.replace(/^[\s\u200b\ufeff]+|[\s\u200b\ufeff]+$/g, "");
  if (!/^[\x21-\x7e]+$/.test(clean)) {
    throw new TypeError("The API key is empty, or has characters that no API key has.");
  }
  return clean;
}

/**
 * A business system's connection to the platform.
 *
 * Every call repeats its request for `patience` seconds while the platform is away, under the same
 * idempotency key. `timeout` is for one attempt, in seconds, and grows with what it sends. Every
 * method rejects with a `PlatformError`, or with the reason of its `signal`. `E` has the event types
 * and their payloads, as `msgplatform-types` writes them.
 */
export class Client<E extends object = AnyEvents> {
  /** Every operation of the API, with the same retries and errors. */
  readonly api: ApiClient<paths>;

  constructor(url: string, key: string, options: RetryOptions = {}) {
    this.api = createClient<paths>({
      baseUrl: url.replace(/\/+$/, ""),
      headers: { Authorization: `Bearer ${cleanKey(key)}` },
      fetch: retryingFetch(options),
    });
  }

  /** Publish an event. It is on the platform's disk when this resolves. */
  async publish<T extends EventType<E>>(
    event_type: T,
    payload: E[T],
    options: KeyOptions & { channel?: string } = {},
  ): Promise<Accepted> {
    const { key, channel, signal } = options;
    const body = { event_type, payload, channel: channel || null, idempotency_key: key || newKey() };
    return read(this.api.POST("/api/v1/messages", { body, ...within(signal) }));
  }

  /**
   * Publish events, a thousand in a request: a verdict for each, in order.
   *
   * A wrong event is `rejected` with its reason and keeps no other from being accepted. After an
   * error the same events can be published again, if they have keys.
   */
  async publishMany(
    events: Iterable<NewEvent<E>> | AsyncIterable<NewEvent<E>>,
    { signal }: CallOptions = {},
  ): Promise<Verdict[]> {
    const verdicts: Verdict[] = [];
    for await (const body of batches<E>(events)) {
      const answer = this.api.POST("/api/v1/messages/batch", { body, ...within(signal) });
      const { results } = await read(answer);
      if (results.length !== body.messages.length) {
        const counts = `${results.length} verdicts for ${body.messages.length} events`;
        throw new UnexpectedAnswer(`The platform answered with ${counts}`);
      }
      verdicts.push(...results);
    }
    return verdicts;
  }

  /** Send a text. The answer has an id for each recipient. */
  async sendSms(
    to: string | string[],
    text: string,
    options: SmsOptions = {},
  ): Promise<AcceptedSms> {
    const { key, schedule_at, signal, reference, account } = options;
    const body: Schemas["SendRequest"] = {
      to: typeof to === "string" ? [to] : to,
      text,
      idempotency_key: key || newKey(),
      reference: reference || null,
      account: account || null,
      schedule_at: schedule_at?.toISOString() ?? null,
    };
    return read(this.api.POST("/api/v1/sms", { body, ...within(signal) }));
  }

  /** Hand over a lead of a landing page; `key` is as in `publish`. */
  async sendLead(
    lead: Omit<Schemas["NewLeadRequest"], "idempotency_key">,
    { key, signal }: KeyOptions = {},
  ): Promise<Accepted> {
    const body = { ...lead, idempotency_key: key || newKey() };
    return read(this.api.POST("/api/v1/leads", { body, ...within(signal) }));
  }

  /** An event with its deliveries and their attempts. */
  async message(
    id: string,
    { withPayload, signal }: CallOptions & { withPayload?: boolean } = {},
  ): Promise<MessageDetail> {
    const query = withPayload ? { expand: "payload" as const } : {};
    const params = { path: { id }, query };
    return read(this.api.GET("/api/v1/messages/{id}", { params, ...within(signal) }));
  }

  /** Your events, newest first, page after page. */
  messages(filters: MessageFilters = {}, options: CallOptions = {}): AsyncGenerator<Message> {
    const { since, until, ...others } = filters;
    const query = {
      ...others,
      ...(since && { since: since.toISOString() }),
      ...(until && { until: until.toISOString() }),
    };
    return items(this.api, "/api/v1/messages", { query }, options.signal);
  }

  /** What any list of the API has, page after page: `client.list("/api/v1/feed/posts")`. */
  list<P extends ListPath>(
    path: P,
    parameters: ListParameters<P> = {} as ListParameters<P>,
    options: CallOptions = {},
  ): AsyncGenerator<ItemOf<P>> {
    return items(this.api, path, parameters, options.signal);
  }

  /** The event as it is now, and after each change, until no delivery waits for anything. */
  follow(id: string, options: FollowOptions = {}): AsyncGenerator<MessageDetail> {
    return follow(() => this.message(id, options), hasEnded, options);
  }

  /** The state of a text. */
  async sms(id: string, { signal }: CallOptions = {}): Promise<Sms> {
    return read(this.api.GET("/api/v1/sms/{id}", { params: { path: { id } }, ...within(signal) }));
  }

  /** The text as it is now, and after each change, until its state is final. */
  followSms(id: string, options: FollowOptions = {}): AsyncGenerator<Sms> {
    return follow(() => this.sms(id, options), (sms) => !SMS_UNDER_WAY.has(sms.state), options);
  }

  /**
   * Start a job that sends messages again. It needs a management key (`manage:jobs`).
   *
   * The filters are those of the flow's action `resend`: `{ ids: "1,2" }`,
   * `{ subscription: "orders/warehouse" }`. `rate` is in messages a second.
   */
  async resend(
    filter: Record<string, string>,
    options: KeyOptions & { flow?: string; rate?: number } = {},
  ): Promise<Job> {
    const { flow = "notify", rate = null, key, signal } = options;
    const body = { flow, action: "resend", filter, rate, idempotency_key: key || newKey() };
    const job = await read(this.api.POST("/api/v1/jobs", { body, ...within(signal) }));
    if (!("id" in job)) throw new UnexpectedAnswer("The platform answered with no job");
    return job;
  }

  /** How far a job is. */
  async job(id: string, { signal }: CallOptions = {}): Promise<Job> {
    return read(this.api.GET("/api/v1/jobs/{id}", { params: { path: { id } }, ...within(signal) }));
  }
}

/** True if no delivery waits for anything, until somebody sends it again. */
function hasEnded(message: MessageDetail): boolean {
  return message.state === "distributed" && !message.deliveries.some((each) => WAITING.has(each.status));
}

async function* follow<T>(
  look: () => Promise<T>,
  hasEnded: (state: T) => boolean,
  { seconds = Infinity, every = FOLLOW_SECONDS, signal }: FollowOptions,
): AsyncGenerator<T> {
  const deadline = now() + seconds;
  let latest = "";
  for (;;) {
    const state = await look();
    const text = JSON.stringify(state);
    if (text !== latest) yield state;
    if (hasEnded(state)) return;
    if (now() > deadline) throw new NotEnded("The message has not ended yet");
    latest = text;
    await sleep(every, signal);
  }
}

function within(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal ? { signal } : {};
}
