// Repeats requests below openapi-fetch: every call has it, those of `client.api` too.
//
// A request is repeated only if that cannot do anything twice: it reads, it replaces, its answer says
// that nothing was done, or it has an idempotency key. The platform's documentation (*What holds for
// every request*) has the table of answers.

import { Unreachable, errorOf, isPage, kindOf, problemOf, retryAfter } from "./errors.js";

/** Of one request, its repeats included: enough for a restart of the platform. */
export const PATIENCE_SECONDS = 120;
export const TIMEOUT_SECONDS = 30;
// The slowest line on which the platform waits for a request's body.
const MIN_BYTES_PER_SECOND = 16 * 1024;
const MAX_PAUSE_SECONDS = 60;
// The longest time that a timer of JavaScript holds.
const MAX_TIMER_SECONDS = 2_147_483;
const READING_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);
const REPLACING_METHODS = new Set(["PUT", "DELETE"]);
const PLATFORM_FILE = "/api/v1/platform";
const STATUSES_WITHOUT_BODY = new Set([101, 204, 205, 304]);
// Node's codes of connections over which nothing was sent. Browsers tell no code.
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

export interface RetryOptions {
  /** Seconds for one request, its repeats included. */
  patience?: number | undefined;
  /** Seconds for one attempt, the answer's body included; a second more for each 16 KiB that is sent. */
  timeout?: number | undefined;
  /** Sends a request; the platform's own `fetch` when left out. */
  fetch?: typeof fetch | undefined;
}

type Attempt = { response: Response; text: string } | { error: unknown };

/**
 * A `fetch` that repeats its request for `patience` seconds, then rejects with the error of the last
 * answer, or with `Unreachable`. Every answer that is none of 2xx is an error.
 */
export function retryingFetch(options: RetryOptions): (request: Request) => Promise<Response> {
  const patience = options.patience ?? PATIENCE_SECONDS;
  const send = options.fetch ?? fetch;
  return async (request) => {
    const isBodiless = request.method === "GET" || request.method === "HEAD";
    const body = isBodiless ? undefined : await request.text();
    const init = initOf(request, body);
    const sendingSeconds = new TextEncoder().encode(body).length / MIN_BYTES_PER_SECOND;
    const timeout = (options.timeout ?? TIMEOUT_SECONDS) + sendingSeconds;
    const deadline = now() + patience;
    let isLost = false;
    for (let count = 1; ; count += 1) {
      const attempt = await attemptOf(send, request, init, timeout);
      if ("response" in attempt && attempt.response.ok && !isPage(attempt.response)) {
        return attempt.response;
      }
      // Nothing is there to delete after a deletion whose own answer was lost: it has succeeded.
      if (isLost && "response" in attempt && attempt.response.status === 404) {
        return new Response(null, { status: 204 });
      }
      isLost ||= request.method === "DELETE" && mayHaveHappened(attempt);
      request.signal.throwIfAborted();
      const pause = pauseAfter(count, attempt);
      // No pause begins that would last beyond the deadline.
      if (!canRepeat(request, body, attempt) || now() + pause > deadline) {
        throw errorOfAttempt(request, attempt);
      }
      await sleep(pause, request.signal);
    }
  };
}

function initOf(request: Request, body: string | undefined): RequestInit {
  const init: RequestInit = {
    method: request.method,
    headers: request.headers,
    redirect: "manual",
  };
  return body === undefined ? init : { ...init, body };
}

/** One attempt; its answer is read whole, so that a connection that breaks later is an error here. */
async function attemptOf(
  send: typeof fetch,
  request: Request,
  init: RequestInit,
  timeout: number,
): Promise<Attempt> {
  const controller = new AbortController();
  const abort = () => controller.abort(request.signal.reason);
  const timer = setTimeout(() => {
    controller.abort(new DOMException(`no answer in ${+timeout.toFixed(1)} s`, "TimeoutError"));
  }, milliseconds(timeout));
  request.signal.addEventListener("abort", abort);
  try {
    request.signal.throwIfAborted();
    const raw = await send(request.url, { ...init, signal: controller.signal });
    if (raw.type === "opaqueredirect") return { response: raw, text: "" };
    const text = await raw.text();
    const { status, statusText, headers } = raw;
    const content = STATUSES_WITHOUT_BODY.has(status) ? null : text;
    return { response: new Response(content, { status, statusText, headers }), text };
  } catch (error) {
    return { error };
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener("abort", abort);
  }
}

function canRepeat(request: Request, body: string | undefined, attempt: Attempt): boolean {
  if ("error" in attempt) return wasNotSent(attempt.error) || isRepeatable(request, body);
  const { response, text } = attempt;
  if (response.status === 429) return true;
  if (response.status < 500 && response.status !== 408) return false;
  return kindOf(problemOf(response, text)) === "unavailable" || isRepeatable(request, body);
}

/** True if the request may have been carried out, and no answer says so. */
function mayHaveHappened(attempt: Attempt): boolean {
  if ("error" in attempt) return !wasNotSent(attempt.error);
  const { response, text } = attempt;
  return response.status >= 500 && kindOf(problemOf(response, text)) !== "unavailable";
}

function wasNotSent(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  const errors: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  return errors.every(
    (each) => each instanceof Error && NOT_SENT.has(String((each as { code?: unknown }).code)),
  );
}

/**
 * True if carrying the request out twice has the same result as once: by its method, or by an
 * idempotency key in its header, in its body, or in each item of its batch.
 */
export function isRepeatable(request: Request, body: string | undefined): boolean {
  if (READING_METHODS.has(request.method) || request.headers.has("idempotency-key")) return true;
  if (REPLACING_METHODS.has(request.method)) return !isAnsweredOnce(request);
  let content: unknown;
  try {
    content = JSON.parse(body ?? "");
  } catch {
    return false;
  }
  if (hasKey(content)) return true;
  if (!new URL(request.url).pathname.endsWith("/batch")) return false;
  if (typeof content !== "object" || content === null) return false;
  const items = Object.values(content).filter(Array.isArray).flat() as unknown[];
  return items.every(hasKey);
}

/**
 * True if a repeat can hide what the first request did: its precondition does not hold any more, or
 * the answer that was lost has the only copy of new secrets.
 */
function isAnsweredOnce(request: Request): boolean {
  if (request.headers.has("if-match") || request.headers.has("if-none-match")) return true;
  const { pathname, searchParams } = new URL(request.url);
  return pathname.endsWith(PLATFORM_FILE) && searchParams.get("dry_run") !== "true";
}

function hasKey(item: unknown): boolean {
  return (
    typeof item === "object" && item !== null && "idempotency_key" in item && !!item.idempotency_key
  );
}

/** Seconds until the next attempt: what the answer says, and never less than the back-off. */
function pauseAfter(count: number, attempt: Attempt): number {
  const backOff = Math.min(2 ** (count - 1) + Math.random(), MAX_PAUSE_SECONDS);
  return "error" in attempt ? backOff : Math.max(backOff, retryAfter(attempt.response) ?? 0);
}

function errorOfAttempt(request: Request, attempt: Attempt): Error {
  if ("response" in attempt) return errorOf(attempt.response, attempt.text);
  const { error } = attempt;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const said = cause instanceof Error ? cause.message || cause.name : String(cause);
  const { origin } = new URL(request.url);
  return new Unreachable(`${origin} does not answer: ${said}`, { cause: error });
}

/** Waits; rejects with the signal's reason as soon as it is aborted. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds(seconds));
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

function milliseconds(seconds: number): number {
  return Math.min(seconds, MAX_TIMER_SECONDS) * 1000;
}

/** Seconds of a clock that nobody sets. */
export function now(): number {
  return performance.now() / 1000;
}
