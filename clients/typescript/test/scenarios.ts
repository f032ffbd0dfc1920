/** Runs one scenario of `clients/scenarios.json` at a server: node scenarios.js FILE NUMBER RUN PUBLIC_KEY. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { connect, Platform, Sandbox, SandyardError } from "../src/index.js";

interface Step {
  call: string;
  on?: string;
  of?: unknown[];
  with?: Record<string, unknown>;
  key?: string;
  limit?: number;
  as?: string;
  expect?: unknown;
  items?: unknown[];
  contains?: unknown;
  fails?: string;
}

const [file = "", number = "", run = "", publicKey = ""] = process.argv.slice(2);
const { steps } = (JSON.parse(readFileSync(file, "utf8")) as { steps: Step[] }[])[Number(number)]!;
const known: Record<string, unknown> = { run, public_key: publicKey };
const api = connect({
  url: process.env["SANDYARD_URL"] ?? "",
  token: process.env["SANDYARD_API_KEY"] ?? "",
  retries: { firstDelayMs: 20, longestDelayMs: 500 },
});
const platform = new Platform(api);

const camel = (name: string) => name.replace(/_(\w)/g, (_, char: string) => char.toUpperCase());
const snake = (name: string) => name.replace(/[A-Z]/g, (char) => `_${char.toLowerCase()}`);
const SECONDS: Record<string, string> = { timeout: "timeoutSec" };

/** With the values of `$names` in it. */
function filled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(filled);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, filled(each)]));
  }
  if (typeof value !== "string") return value;
  if (/^\$[\w.]+$/.test(value)) return found(value.slice(1));
  return value.replace(/\$(\w+)/g, (whole, name: string) => (name in known ? String(known[name]) : whole));
}

function found(path: string): unknown {
  return path.split(".").reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], known);
}

/** The method that the step calls, and what it is called with. */
async function called(step: Step): Promise<unknown> {
  const fields = filled(step.with ?? {}) as Record<string, unknown>;
  if (step.call === "sandbox.create") return Sandbox.create(api, fields as unknown as { template: string });
  const names = step.call.split(".").map(camel);
  const start = step.on === undefined ? platform : known[step.on];
  const holder = names.slice(0, -1).reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], start);
  const method = (holder as Record<string, (...all: unknown[]) => unknown>)[names.at(-1)!]!;
  const isFace = step.on !== undefined && names.length === 1;
  const options = Object.fromEntries(Object.entries(fields).map(([name, each]) => [isFace ? (SECONDS[name] ?? camel(name)) : name, each]));
  const rest = Object.keys(options).length > 0 || step.key || step.limit ? [options] : [];
  const last = step.key ? [{ key: filled(step.key) }] : step.limit ? [step.limit] : [];
  const answer = await method.call(holder, ...(filled(step.of ?? []) as unknown[]), ...rest, ...last);
  return isListing(answer) ? all(answer) : answer;
}

const isListing = (value: unknown): value is AsyncIterable<unknown> =>
  value !== null && typeof value === "object" && Symbol.asyncIterator in value;

async function all(items: AsyncIterable<unknown>): Promise<unknown[]> {
  const read = [];
  for await (const each of items) read.push(each);
  return read;
}

/** Whether the answer has what is expected, whatever else it has. */
function matches(answer: unknown, expected: unknown): boolean {
  if (expected === null || typeof expected !== "object" || Array.isArray(expected)) return JSON.stringify(answer) === JSON.stringify(expected);
  const fields = Object.fromEntries(Object.entries(answer as object).map(([name, each]) => [snake(name), each]));
  return Object.entries(expected).every(([name, each]) => matches(fields[name], each));
}

for (const step of steps) {
  const what = JSON.stringify(step);
  if (step.fails !== undefined) {
    const code = step.fails;
    await assert.rejects(called(step), (error) => code === "*" || (error instanceof SandyardError && error.code === code), what);
    continue;
  }
  const answer = await called(step);
  const shown = `${what}: ${JSON.stringify(answer)}`;
  if (step.as !== undefined) known[step.as] = answer;
  if (step.expect !== undefined) assert.ok(matches(answer, filled(step.expect)), shown);
  if (step.contains !== undefined) assert.ok((answer as unknown[]).some((each) => matches(each, filled(step.contains))), shown);
  if (step.items !== undefined) {
    const items = filled(step.items) as unknown[];
    assert.equal((answer as unknown[]).length, items.length, shown);
    items.forEach((each, index) => assert.ok(matches((answer as unknown[])[index], each), shown));
  }
}
