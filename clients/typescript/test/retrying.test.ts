/** Which requests are sent again. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { connect, delayBefore, defaultRetries, mayRepeat, SandyardError, UnreachableError } from "../src/index.js";

const URL_OF = (path: string) => `http://127.0.0.1:1${path}`;
const QUICK = { withinMs: 2_000, firstDelayMs: 1, longestDelayMs: 4 };

test("only what changes nothing twice is sent again", () => {
  const allocate = new Request(URL_OF("/v1/allocate"), { method: "POST" });
  const release = new Request(URL_OF("/v1/release"), { method: "POST" });
  const create = new Request(URL_OF("/api/v1/sandboxes"), { method: "POST" });
  const keyed = new Request(URL_OF("/v1/sandboxes/x/extend"), { method: "POST", headers: { "Idempotency-Key": "k" } });
  for (const status of [undefined, 408, 429, 500, 503]) {
    assert.equal(mayRepeat(allocate, status), true, String(status));
    assert.equal(mayRepeat(release, status), true, String(status));
    assert.equal(mayRepeat(keyed, status), true, String(status));
    assert.equal(mayRepeat(create, status), status === 429, String(status));
  }
  for (const status of [200, 400, 401, 403, 404, 409, 413, 501]) assert.equal(mayRepeat(allocate, status), false);
});

test("the server's Retry-After is the least delay", () => {
  const asked = new Response(null, { status: 503, headers: { "Retry-After": "3" } });
  assert.ok(delayBefore(1, asked, defaultRetries) >= 3000);
  const date = new Date(Date.now() + 5000).toUTCString();
  const until = new Response(null, { status: 503, headers: { "Retry-After": date } });
  assert.ok(delayBefore(1, until, defaultRetries) >= 3500);
  for (let retry = 1; retry < 40; retry++) {
    const delay = delayBefore(retry, undefined, defaultRetries);
    assert.ok(delay > 0 && delay <= defaultRetries.longestDelayMs);
  }
});

test("a refusal is an error with its code, and no answer one of its own", async () => {
  const refusal = { error: { code: "NO_SANDBOXES_AVAILABLE", message: "None.", request_id: "r1", retry_after: 7 } };
  const refused = connect({ url: URL_OF(""), token: "t", fetch: async () => Response.json(refusal, { status: 409 }) });
  const call = (api: typeof refused) => api.POST("/v1/allocate", { params: { header: { "X-Track-ID": "t" } } });
  await assert.rejects(call(refused), (error) => {
    assert.ok(error instanceof SandyardError);
    assert.deepEqual([error.status, error.code, error.requestId, error.retryAfterSec], [409, "NO_SANDBOXES_AVAILABLE", "r1", 7]);
    return true;
  });
  let sent = 0;
  const away = connect({
    url: URL_OF(""),
    token: "t",
    retries: { ...QUICK, withinMs: 30 },
    fetch: async () => {
      sent++;
      throw new TypeError("connection reset");
    },
  });
  await assert.rejects(call(away), UnreachableError);
  assert.ok(sent > 1);
});

test("an attempt that is not answered is given up, and sent again", async () => {
  let sent = 0;
  const api = connect({
    url: URL_OF(""),
    token: "t",
    retries: { ...QUICK, attemptMs: 20 },
    fetch: (input) => {
      if (sent++ > 0) return Promise.resolve(Response.json({ status: "ok" }));
      const { signal } = input as Request;
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  });
  assert.equal((await api.GET("/healthz")).response.status, 200);
  assert.equal(sent, 2);
});

test("a rate limit after a lost answer does not hide that the call may have been carried out", async () => {
  const limited = () => Response.json({}, { status: 429, headers: { "Retry-After": "600" } });
  const call = (first: () => Response) => {
    let sent = 0;
    const fetch = async () => (sent++ === 0 ? first() : limited());
    const api = connect({ url: URL_OF(""), token: "t", retries: QUICK, fetch });
    return api.POST("/v1/allocate", { params: { header: { "X-Track-ID": "t" } } });
  };
  const lost = () => {
    throw new TypeError("connection reset");
  };
  await assert.rejects(call(lost), UnreachableError);
  await assert.rejects(call(limited), SandyardError);
});
