// Errors of the platform and of the way to it, each with the answer to: is it worth repeating?

/** What the platform says about a request that it did not carry out (RFC 9457). */
export interface Problem {
  type?: string;
  title?: string;
  detail?: string;
  errors?: FieldError[];
  [field: string]: unknown;
}

/** A wrong field of a request, and what to change. */
export interface FieldError {
  field: string;
  message: string;
}

/**
 * The base of all errors of this package.
 *
 * `isPermanent` is true if the same request can never succeed: correct it, or the API key. After any
 * other error the same request may be repeated with the same idempotency key.
 */
export class PlatformError extends Error {
  readonly isPermanent: boolean = false;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No answer: the platform is away, or the connection broke. It may or may not have happened. */
export class Unreachable extends PlatformError {}

/**
 * An answer that this release of the client cannot read: the platform may be newer, or something
 * else answers at its address.
 */
export class UnexpectedAnswer extends PlatformError {
  override readonly isPermanent: boolean = true;
}

/** A page for people: a proxy's, or that of a sign-in. The platform may be there again later. */
export class NotThePlatform extends UnexpectedAnswer {
  override readonly isPermanent: boolean = false;
}

/**
 * The platform's answer to a request that it did not carry out.
 *
 * `kind` is the stable name, such as `invalid-input`; it is "" when something between has answered.
 * `retryAfter` is in seconds, undefined if the answer does not say it.
 */
export class ProblemError extends PlatformError {
  readonly kind: string;
  readonly title: string;
  readonly detail: string;
  readonly errors: readonly FieldError[];

  constructor(
    readonly status: number,
    readonly problem: Problem,
    readonly retryAfter: number | undefined,
  ) {
    const title = problem.title || `HTTP ${status}`;
    super(problem.detail ? `${status} ${title}: ${problem.detail}` : `${status} ${title}`);
    this.kind = kindOf(problem);
    this.title = title;
    this.detail = problem.detail ?? "";
    this.errors = problem.errors ?? [];
  }
}

/** The request is wrong, and repeating it does not help. */
export class Refused extends ProblemError {
  override readonly isPermanent: boolean = true;
}

/** The API key is not valid, or lacks a scope (401, 403). */
export class NotAuthorized extends Refused {}

/** Nothing has this id or this address (404). */
export class NotFound extends Refused {}

/** This idempotency key was used for another content (409). */
export class KeyConflict extends Refused {}

/** The platform cannot do it now; the detail says what prevents it (409). */
export class NotNow extends ProblemError {}

/** Too many requests: repeat after `retryAfter` seconds (429). */
export class Throttled extends ProblemError {}

/** The platform, or something before it, is out of order at the moment (408, 5xx). */
export class Unavailable extends ProblemError {}

/** It may or may not have happened: repeat it with the same idempotency key (503). */
export class OutcomeUnknown extends Unavailable {}

type ProblemClass = new (
  status: number,
  problem: Problem,
  retryAfter: number | undefined,
) => ProblemError;

const BY_KIND: Record<string, ProblemClass> = {
  conflict: KeyConflict,
  "not-now": NotNow,
  "outcome-unknown": OutcomeUnknown,
};
const BY_STATUS: Record<number, ProblemClass> = {
  401: NotAuthorized,
  403: NotAuthorized,
  404: NotFound,
  408: Unavailable,
  429: Throttled,
};

/** The error that stands for an answer that is none of 2xx; `text` is its body. */
export function errorOf(response: Response, text: string): PlatformError {
  if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) {
    const address = response.headers.get("location") ?? "unknown";
    return new UnexpectedAnswer(`The platform is at another address: ${address}`);
  }
  if (isPage(response)) {
    return new NotThePlatform("Something else answered with a page: a proxy, or a sign-in.");
  }
  const { status } = response;
  const problem = problemOf(response, text);
  const errorClass =
    BY_KIND[kindOf(problem)] ?? BY_STATUS[status] ?? (status >= 500 ? Unavailable : Refused);
  return new errorClass(status, problem, retryAfter(response));
}

/** What an answer of 2xx says. Rejects with `UnexpectedAnswer` if it is no JSON. */
export async function read<T>(call: Promise<{ data?: T }>): Promise<T> {
  let data: T | undefined;
  try {
    ({ data } = await call);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (typeof data !== "object" || data === null) {
    throw new UnexpectedAnswer("The answer has an unknown form: does something else answer there?");
  }
  return data;
}

/** True if the answer is a page for people, although its status is one of success. */
export function isPage(response: Response): boolean {
  return response.ok && !!response.headers.get("content-type")?.startsWith("text/html");
}

/** The problem document of an answer; {} when it has none. */
export function problemOf(response: Response, text: string): Problem {
  if (!response.headers.get("content-type")?.includes("json")) return {};
  try {
    const document: unknown = JSON.parse(text);
    return typeof document === "object" && document !== null ? (document as Problem) : {};
  } catch {
    return {};
  }
}

/** The name behind `/problems/`, "" when there is none. */
export function kindOf(problem: Problem): string {
  const type = String(problem.type ?? "");
  const end = type.lastIndexOf("/problems/");
  return end < 0 ? "" : type.slice(end + "/problems/".length);
}

/** Seconds from now, whether the header has seconds or a date; undefined without the header. */
export function retryAfter(response: Response): number | undefined {
  const text = response.headers.get("retry-after") ?? "";
  if (/^[0-9]+$/.test(text)) return Number(text);
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - Date.now()) / 1000);
}
