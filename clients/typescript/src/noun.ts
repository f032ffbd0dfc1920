/** What all nouns do: typed calls of the document's operations. */

import type { Api } from "./connection.js";
import type { operations } from "./schema.js";

type Name = keyof operations;
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Responses<N extends Name> = operations[N]["responses"];
type Success<N extends Name> = {
  [Status in keyof Responses<N>]: Status extends 200 | 201 | 202 ? Json<Responses<N>[Status]> : never;
}[keyof Responses<N>];
type OrNothing<T> = [T] extends [never] ? {} : T;
type Query<N extends Name> = operations[N]["parameters"] extends { query?: infer Q }
  ? OrNothing<[NonNullable<Q>] extends [never] ? never : Omit<NonNullable<Q>, "cursor" | "limit">>
  : {};
type Body<N extends Name> = operations[N] extends { requestBody?: infer B } ? OrNothing<NonNullable<Json<NonNullable<B>>>> : {};

/** What an operation answers. */
export type Answer<N extends Name> = [Success<N>] extends [never] ? void : Success<N>;
/** Its fields, of the query and the body. */
export type Fields<N extends Name> = Query<N> & Body<N>;
/** An item of a listing. */
export type Item<N extends Name, Key extends string> = Success<N> extends { [K in Key]: readonly (infer T)[] } ? T : never;
export interface Options {
  /** Idempotency key, to repeat the call after this program has ended; a new one if there is none. */
  key?: string;
}

/** One method of `openapi-fetch`, with the types that the nouns have checked already. */
type Send = (path: string, init: object) => Promise<{ data?: unknown }>;

export class Noun {
  /** `of` is the id of what the noun belongs to, such as a sandbox. */
  constructor(
    readonly api: Api,
    protected readonly of = "",
  ) {}

  protected async call<N extends Name>(
    _name: N,
    method: string,
    path: string,
    values: readonly string[],
    fields: object,
    place: "query" | "body",
    options: Options = {},
  ): Promise<Answer<N>> {
    const header = options.key === undefined ? {} : { "Idempotency-Key": options.key };
    const params = { path: named(path, values), header, ...(place === "query" ? { query: fields } : {}) };
    const hasBody = place === "body" && (Object.keys(fields).length > 0 || method === "PATCH");
    const send = (this.api as unknown as Record<string, Send>)[method]!;
    const { data } = await send(path, { params, ...(hasBody ? { body: fields } : {}) });
    return data as Answer<N>;
  }

  protected async *items<N extends Name, Key extends string>(
    name: N,
    method: string,
    path: string,
    values: readonly string[],
    fields: object,
    key: Key,
    limit: number,
  ): AsyncIterable<Item<N, Key>> {
    let left = limit;
    for (let cursor: string | null | undefined = undefined; cursor !== null && left > 0; ) {
      const query: object = { ...fields, ...(cursor ? { cursor } : {}) };
      const page = (await this.call(name, method, path, values, query, "query")) as Record<string, unknown>;
      for (const item of page[key] as Item<N, Key>[]) {
        if (left-- <= 0) return;
        yield item;
      }
      cursor = (page["next_cursor"] as string | null | undefined) ?? null;
    }
  }
}

/** The values by the names in the path, in their order. */
function named(path: string, values: readonly string[]): Record<string, string> {
  const names = [...path.matchAll(/{(\w+)}/g)].map((each) => each[1]!);
  return Object.fromEntries(names.map((name, index) => [name, values[index] ?? ""]));
}
