/**
 * A client for msgplatform: publish events, send texts, follow them, verify what is delivered.
 *
 * `Client` has the usual calls. `client.api` has every operation of the platform's API; `paths` and
 * `components` are its types, made from its OpenAPI document.
 */

export {
  type Accepted,
  type AcceptedSms,
  type CallOptions,
  Client,
  type FollowOptions,
  type Job,
  type KeyOptions,
  type Message,
  type MessageDetail,
  type MessageFilters,
  NotEnded,
  type Sms,
  type SmsOptions,
  type Verdict,
} from "./client.js";
export {
  type FieldError,
  KeyConflict,
  NotAuthorized,
  NotFound,
  NotNow,
  NotThePlatform,
  OutcomeUnknown,
  PlatformError,
  type Problem,
  ProblemError,
  Refused,
  Throttled,
  Unavailable,
  UnexpectedAnswer,
  Unreachable,
} from "./errors.js";
export type { AnyEvents, NewEvent } from "./events.js";
export type { components, operations, paths } from "./generated/api.js";
export type { ItemOf, ListParameters, ListPath } from "./lists.js";
export type { RetryOptions } from "./retries.js";
export {
  type Delivery,
  type HeadersLike,
  type VerifyOptions,
  WebhookVerificationError,
  verify,
} from "./webhooks.js";
