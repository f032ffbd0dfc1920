/** A connection to a server: every call of its API by path, typed by its OpenAPI document. */

import createClient, { type Client } from "openapi-fetch";

import { SandyardError } from "./errors.js";
import { KEYED } from "./nouns.js";
import { defaultRetries, retrying, type Retries } from "./retrying.js";
import type { paths } from "./schema.js";

/** `api.GET("/v1/sandboxes/{sandbox_id}", { params: … })`; a refusal is thrown as SandyardError. */
export type Api = Client<paths>;

export interface Connection {
  /** Where the server is, as `http://127.0.0.1:8080`. */
  url: string;
  /** A track's, operator's or client's token, a login, or an API key. */
  token: string;
  retries?: Partial<Retries>;
  /** For tests, and for callers behind a proxy of their own. */
  fetch?: typeof fetch;
}

export function connect({ url, token, retries, fetch: send }: Connection): Api {
  const api = createClient<paths>({
    baseUrl: url.replace(/\/+$/, ""),
    headers: { Authorization: `Bearer ${token}` },
    fetch: retrying(send ?? fetch, { ...defaultRetries, ...retries }),
  });
  api.use({
    onRequest({ request, schemaPath }) {
      if (request.method !== "POST" || !makes(schemaPath) || request.headers.has(KEY)) return undefined;
      request.headers.set(KEY, crypto.randomUUID());
      return request;
    },
    async onResponse({ response }) {
      if (!response.ok) throw SandyardError.of(response, await bodyOf(response));
    },
  });
  return api;
}

const KEY = "Idempotency-Key";

/** Whether a call at this path makes something, and takes a key so that it may be sent again. */
const makes = (path: string) => KEYED.has(path) || /^\/e2b\/sandboxes\/[^/]+\/snapshots$/.test(path);

async function bodyOf(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    return undefined;
  }
}
