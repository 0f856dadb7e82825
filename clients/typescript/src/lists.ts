// Lists of the API as one iteration over all their pages.

import type { Client as ApiClient } from "openapi-fetch";
import { UnexpectedAnswer, read } from "./errors.js";
import type { paths } from "./generated/api.js";

const PAGE_ITEMS = 200; // the most that the platform gives

type PageOf<P extends keyof paths> = paths[P] extends {
  get: { responses: { 200: { content: { "application/json": infer Page } } } };
}
  ? Page
  : never;

/** Addresses whose answer is a page of a list. */
export type ListPath = {
  [P in keyof paths]: PageOf<P> extends { results: unknown[]; next: string | null } ? P : never;
}[keyof paths];

/** What a list at this address consists of. */
export type ItemOf<P extends ListPath> =
  PageOf<P> extends { results: (infer Item)[] } ? Item : never;

type GetOf<P extends ListPath> = paths[P] extends { get: { parameters: infer X } } ? X : never;

/** The filters of a list (`query`) and the names in its address (`path`). */
export type ListParameters<P extends ListPath> = Pick<
  GetOf<P>,
  Extract<keyof GetOf<P>, "query" | "path">
>;

interface Page {
  results: unknown[];
  next: string | null;
}

type Get = (path: string, options: object) => Promise<{ data?: unknown }>;

/** Each item of the list, page after page. */
export async function* items<P extends ListPath>(
  api: ApiClient<paths>,
  path: P,
  parameters: { query?: object; path?: object },
  signal: AbortSignal | undefined,
): AsyncGenerator<ItemOf<P>> {
  // The types of openapi-fetch know one address at a time, not "any list".
  const get = api.GET as unknown as Get;
  let query: object | null = { limit: PAGE_ITEMS, ...parameters.query };
  while (query !== null) {
    const data: unknown = await read(get(path, { params: { ...parameters, query }, signal }));
    if (!isPage(data)) throw new UnexpectedAnswer(`The platform answered ${path} with no list`);
    yield* data.results as ItemOf<P>[];
    query = data.next === null ? null : Object.fromEntries(new URL(data.next).searchParams);
  }
}

function isPage(data: unknown): data is Page {
  return (
    typeof data === "object" &&
    data !== null &&
    "results" in data &&
    Array.isArray(data.results) &&
    "next" in data
  );
}
