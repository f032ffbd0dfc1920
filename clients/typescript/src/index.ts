/** A typed client of a Sandyard server. */

export { connect, type Api, type Connection } from "./connection.js";
export { SandyardError, UnreachableError } from "./errors.js";
export { Lease, type LeaseWish } from "./lease.js";
export { type Answer, type Fields, type Options } from "./noun.js";
export * from "./nouns.js";
export { Command, Files, Sandbox, type CommandWish, type Output, type Result, type SandboxWish } from "./sandbox.js";
export { mayRepeat, delayBefore, defaultRetries, type Retries } from "./retrying.js";
export type { components, operations, paths } from "./schema.js";
