/** A typed client of a Sandyard server. */

export { connect, type Api, type Connection } from "./connection.js";
export { SandyardError, UnreachableError } from "./errors.js";
export { Lease, type LeaseWish } from "./lease.js";
export { mayRepeat, delayBefore, defaultRetries, type Retries } from "./retrying.js";
export type { components, operations, paths } from "./schema.js";
