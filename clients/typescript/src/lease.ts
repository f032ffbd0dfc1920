/** A lease of a sandbox, held as long as it is used. */

import type { Api } from "./connection.js";
import { SandyardError, UnreachableError } from "./errors.js";
import type { components } from "./schema.js";

type LeaseAnswer = components["schemas"]["LeaseAnswer"];

/** What to lease, and as whom. A track has one lease for each key, however often it asks. */
export interface LeaseWish {
  track: string;
  /** Idempotency key; the track's id if there is none. */
  key?: string;
  namePrefix?: string;
  minutes?: number;
  /** How long to wait for a sandbox if none is free. */
  waitSec?: number;
}

const ENDED = new Set(["ALLOCATION_EXPIRED", "NOT_SANDBOX_OWNER", "SANDBOX_NOT_FOUND"]);

/**
 * `await using lease = await Lease.acquire(api, { track, waitSec: 60 })` takes one and gives it up
 * at the end of the block; `release` does so by hand.
 */
export class Lease implements AsyncDisposable {
  #answer: LeaseAnswer;

  private constructor(
    readonly api: Api,
    readonly track: string,
    answer: LeaseAnswer,
  ) {
    this.#answer = answer;
  }

  /**
   * One lease, or an error. If all answers are lost, a lease that the server may have made is looked
   * for and given up; where that fails too, the same track and key have it when they ask again.
   */
  static async acquire(api: Api, wish: LeaseWish): Promise<Lease> {
    const until = Date.now() + (wish.waitSec ?? 0) * 1000;
    for (;;) {
      const waitSec = Math.max(0, Math.round((until - Date.now()) / 1000));
      try {
        const { data } = await api.POST("/v1/allocate", { params: { header: headersOf(wish, waitSec) } });
        return new Lease(api, wish.track, data as LeaseAnswer);
      } catch (error) {
        if (isUndecided(error)) await Lease.#settle(api, wish);
        if (!isWorthWaiting(error) || Date.now() + pauseMs(error) > until) throw error;
        await new Promise((resolve) => setTimeout(resolve, pauseMs(error)));
      }
    }
  }

  /** A claim for a name that no sandbox has answers a lease that is there, and never makes one. */
  static async #settle(api: Api, wish: LeaseWish): Promise<void> {
    try {
      const nowhere = { ...wish, namePrefix: `none-${crypto.randomUUID()}` };
      const { data } = await api.POST("/v1/allocate", { params: { header: headersOf(nowhere, 0) } });
      await new Lease(api, wish.track, data as LeaseAnswer).release();
    } catch {
      return; // there is none, or nobody can tell: it ends at its time
    }
  }

  get sandboxId(): string {
    return this.#answer.sandbox_id;
  }

  get name(): string {
    return this.#answer.name;
  }

  get externalId(): string {
    return this.#answer.external_id;
  }

  get expiresAt(): Date {
    return new Date(this.#answer.expires_at * 1000);
  }

  /** Move the end by so many minutes; once, also where the call is sent again. */
  async extend(minutes: number): Promise<Date> {
    const { data } = await this.api.POST("/v1/sandboxes/{sandbox_id}/extend", {
      params: {
        path: { sandbox_id: this.sandboxId },
        header: { "X-Track-ID": this.track, "Idempotency-Key": crypto.randomUUID() },
      },
      body: { minutes },
    });
    this.#answer = { ...this.#answer, ...(data as { expires_at: number }) };
    return this.expiresAt;
  }

  /** Give the sandbox up. One that has ended already is no error. */
  async release(): Promise<void> {
    try {
      await this.api.POST("/v1/sandboxes/{sandbox_id}/mark-for-deletion", {
        params: { path: { sandbox_id: this.sandboxId }, header: { "X-Track-ID": this.track } },
      });
    } catch (error) {
      if (!(error instanceof SandyardError) || !ENDED.has(error.code)) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}

function headersOf(wish: LeaseWish, waitSec: number): { "X-Track-ID": string } {
  const headers: Record<string, string> = { "X-Track-ID": wish.track };
  if (wish.key !== undefined) headers["Idempotency-Key"] = wish.key;
  if (wish.namePrefix !== undefined) headers["X-Sandbox-Name-Prefix"] = wish.namePrefix;
  if (wish.minutes !== undefined) headers["X-Lab-Minutes"] = String(wish.minutes);
  if (waitSec > 0) headers["Prefer"] = `wait=${Math.min(waitSec, 60)}`;
  return headers as { "X-Track-ID": string };
}

/** Whether there may be a lease all the same. */
function isUndecided(error: unknown): boolean {
  return error instanceof UnreachableError || (error instanceof SandyardError && error.status >= 500);
}

function isWorthWaiting(error: unknown): boolean {
  return error instanceof SandyardError && error.code === "NO_SANDBOXES_AVAILABLE";
}

function pauseMs(error: unknown): number {
  return Math.min((error as SandyardError).retryAfterSec ?? 1, 2) * 1000;
}
