/** Which requests are sent again, and after how long. */

import { UnreachableError } from "./errors.js";

/** Delays double from the first to the longest, half of each drawn at random. */
export interface Retries {
  withinMs: number;
  firstDelayMs: number;
  longestDelayMs: number;
  /** How long an attempt may take until its answer begins. */
  attemptMs: number;
}

export const defaultRetries: Retries = {
  withinMs: 60_000,
  firstDelayMs: 200,
  longestDelayMs: 8_000,
  attemptMs: 90_000,
};

const REPEATABLE_METHODS = new Set(["GET", "HEAD", "PUT", "PATCH", "DELETE"]);
const REPEATABLE_POSTS = [
  /\/v1\/allocate$/,
  /\/v1\/queue$/,
  /\/v1\/release$/,
  /\/v1\/sandboxes\/[^/]+\/mark-for-deletion$/,
  /\/api\/v1\/sandboxes\/[^/]+\/(start|stop|program\/(start|stop))$/,
  /\/api\/v1\/projects\/[^/]+\/sync$/,
  /\/telemetry\/v1\/(data|register)$/,
];
const NOT_DECIDED = new Set([408, 425, 429]);
const NEVER_BETTER = new Set([501, 505]);

/** Whether a second arrival of the request changes nothing that the first has not changed. */
export function isRepeatable(request: Request): boolean {
  if (REPEATABLE_METHODS.has(request.method) || request.headers.has("idempotency-key")) return true;
  const path = new URL(request.url).pathname;
  return request.method === "POST" && REPEATABLE_POSTS.some((known) => known.test(path));
}

/**
 * Whether to send the request again after this answer; `undefined` stands for none. One that is
 * not repeatable only after a rate limit turned it away.
 */
export function mayRepeat(request: Request, status: number | undefined): boolean {
  if (status === 429) return true;
  if (!isRepeatable(request)) return false;
  if (status === undefined) return true;
  return NOT_DECIDED.has(status) || (status >= 500 && !NEVER_BETTER.has(status));
}

/** How long to wait before the retry of this number, from 1 on; `Retry-After` is the least. */
export function delayBefore(retry: number, response: Response | undefined, retries: Retries): number {
  const longest = Math.min(retries.longestDelayMs, retries.firstDelayMs * 2 ** Math.min(retry - 1, 30));
  const drawn = longest / 2 + (Math.random() * longest) / 2;
  const asked = askedMs(response?.headers.get("retry-after") ?? "");
  return asked === undefined ? drawn : asked + Math.random() * retries.firstDelayMs;
}

/** What `Retry-After` asks for: seconds, or a date. */
function askedMs(sent: string): number | undefined {
  if (/^\d+$/.test(sent.trim())) return Number(sent) * 1000;
  const until = Date.parse(sent);
  return Number.isNaN(until) ? undefined : Math.max(0, until - Date.now());
}

/** `fetch` that sends again what may be sent again. */
export function retrying(send: typeof fetch, retries: Retries): (request: Request) => Promise<Response> {
  return async (request) => {
    const until = Date.now() + retries.withinMs;
    let mayBeDone = false;
    for (let retry = 1; ; retry++) {
      const outcome = await attempt(send, request.clone(), retries.attemptMs);
      const response = outcome instanceof Response ? outcome : undefined;
      const delay = delayBefore(retry, response, retries);
      const isLast = Date.now() + delay > until || !mayRepeat(request, response?.status);
      const isOpen = mayBeDone && response?.status === 429; // the rate limit does not say what became of it
      if (mayBeDone && request.method === "DELETE" && response?.status === 404) return new Response(null, { status: 204 });
      if (response !== undefined && (response.ok || (isLast && !isOpen))) return response;
      mayBeDone ||= response === undefined || response.status >= 500;
      if (request.signal.aborted) throw request.signal.reason;
      if (isLast) throw new UnreachableError(`No answer from ${request.url}.`, { cause: outcome });
      await response?.body?.cancel();
      await sleep(delay, request.signal);
    }
  };
}

async function attempt(send: typeof fetch, request: Request, withinMs: number): Promise<Response | unknown> {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(new Error(`No answer within ${withinMs} ms.`)), withinMs);
  try {
    return await send(new Request(request, { signal: AbortSignal.any([request.signal, patience.signal]) }));
  } catch (error) {
    return error;
  } finally {
    clearTimeout(timer);
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}
