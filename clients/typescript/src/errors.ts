/** What a call that failed throws. */

interface ErrorBody {
  error?: { code?: string; message?: string; request_id?: string; retry_after?: number };
}

/** The server refused the call; `code` is stable and listed in docs/errors.md. */
export class SandyardError extends Error {
  override readonly name = "SandyardError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly requestId: string | undefined,
    readonly retryAfterSec: number | undefined,
  ) {
    super(message);
  }

  static of(response: Response, body: unknown): SandyardError {
    const told = (body as ErrorBody | undefined)?.error;
    return new SandyardError(
      response.status,
      told?.code ?? `HTTP_${response.status}`,
      told?.message ?? `The server answered ${response.status}.`,
      told?.request_id ?? response.headers.get("x-request-id") ?? undefined,
      told?.retry_after,
    );
  }
}

/** No answer came within the time for retries. What was asked for may have been done. */
export class UnreachableError extends Error {
  override readonly name = "UnreachableError";
}
