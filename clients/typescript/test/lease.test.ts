/** Leases at a real server (SANDYARD_URL, SANDYARD_TOKEN, SANDYARD_ADMIN_TOKEN), which loses answers here. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { connect, Lease, SandyardError, UnreachableError } from "../src/index.js";

const url = process.env["SANDYARD_URL"] ?? "";
const token = process.env["SANDYARD_TOKEN"] ?? "";
const operator = connect({ url, token: process.env["SANDYARD_ADMIN_TOKEN"] ?? "" });
const retries = { firstDelayMs: 1, longestDelayMs: 20 };

/** Sends each request, and loses every other answer. */
function forgetful(): typeof fetch {
  let number = 0;
  return async (input, init) => {
    const answer = await fetch(input, init);
    if (number++ % 2 === 0) throw new TypeError("connection reset");
    return answer;
  };
}

async function allocated(): Promise<number> {
  return (await operator.GET("/v1/admin/stats")).data?.allocated ?? NaN;
}

test("a lease whose answers are lost is taken once, extended once and given up", async () => {
  const api = connect({ url, token, retries, fetch: forgetful() });
  const before = await allocated();
  const lease = await Lease.acquire(api, { track: "ts-lost", minutes: 60 });
  const end = lease.expiresAt.getTime();
  assert.equal((await lease.extend(30)).getTime(), end + 30 * 60_000);
  assert.equal(await allocated(), before + 1);
  const again = await Lease.acquire(api, { track: "ts-lost" });
  assert.equal(again.sandboxId, lease.sandboxId);
  assert.equal(again.expiresAt.getTime(), lease.expiresAt.getTime());
  await lease.release();
  await again.release();
  assert.equal(await allocated(), before);
});

test("a lease whose answers are all lost is found and given up", async () => {
  const before = await allocated();
  const losing: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const isLooking = request.headers.get("X-Sandbox-Name-Prefix")?.startsWith("none-");
    const answer = await fetch(request);
    if (request.url.endsWith("/v1/allocate") && !isLooking) throw new TypeError("connection reset");
    return answer;
  };
  const api = connect({ url, token, retries: { ...retries, withinMs: 500 }, fetch: losing });
  await assert.rejects(Lease.acquire(api, { track: "ts-all-lost" }), UnreachableError);
  const query = { actor: "track:ts-all-lost", kind: "lease.created" };
  assert.equal((await operator.GET("/v1/admin/events", { params: { query } })).data?.events.length, 1);
  assert.equal(await allocated(), before);
});

test("a block gives its lease up, also where it throws", async () => {
  const api = connect({ url, token, retries });
  const before = await allocated();
  const use = async () => {
    const lease = await Lease.acquire(api, { track: "ts-block", waitSec: 5 });
    try {
      throw new Error(`the lab at ${lease.name} failed`);
    } finally {
      await lease[Symbol.asyncDispose]();
    }
  };
  await assert.rejects(use(), /failed/);
  assert.equal(await allocated(), before);
});

test("what is refused says why", async () => {
  const api = connect({ url, token, retries });
  const refused = Lease.acquire(api, { track: "not a track", waitSec: 1 });
  await assert.rejects(refused, (error) => error instanceof SandyardError && error.code === "INVALID_TRACK_ID");
  const none = Lease.acquire(api, { track: "ts-none", namePrefix: "no-such-", waitSec: 0 });
  await assert.rejects(none, (error) => error instanceof SandyardError && error.code === "NO_SANDBOXES_AVAILABLE");
});
