/**
 * Requests, made again while that is safe and may help. Nearly every request of this client may be repeated: those that read change
 * nothing, a submission carries a key, and cancelling twice cancels once. Other requests are repeated only after 429, which
 * says that nothing was done.
 */

import { errorOf, RateLimited, Unavailable, Unexpected, type ForwarderError } from "./errors.js";

/**
 * How long a call is made again: no try begins later than `totalMs` after the first. Between two tries lies what the service asks
 * for in `Retry-After`, and a pause at random, up to `firstMs` and doubling, at most `maxMs` (exponential backoff with full jitter).
 */
export interface RetryPolicy {
  totalMs: number;
  firstMs: number;
  maxMs: number;
}

export const DEFAULT_RETRIES: Readonly<RetryPolicy> = { totalMs: 60_000, firstMs: 200, maxMs: 10_000 };

/** Where time comes from; a test brings its own. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Milliseconds that never go back. */
  monotonic(): number;
  /** Resolves after `ms`; rejects with the signal's reason when that is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const machineClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const stop = (): void => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", stop);
        resolve();
      }, ms);
      signal?.addEventListener("abort", stop, { once: true });
    }),
};

export interface ApiRequest {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  headers?: Record<string, string>;
  query?: URLSearchParams;
  body?: string;
  /** For how long the service may take its time before it answers. */
  waitSeconds?: number;
  /** Making it twice does what making it once does. True unless it is said otherwise. */
  repeatable?: boolean;
  signal?: AbortSignal;
}

/** An answer of the 2xx. */
export interface Answer {
  status: number;
  headers: Headers;
  members: Record<string, unknown>;
}

/** The milliseconds to wait after the `tries`-th try, counted from 1. `chance` is drawn from 0 to 1. */
export function pauseMs(policy: RetryPolicy, tries: number, chance: number, retryAfterSeconds = 0): number {
  return retryAfterSeconds * 1000 + chance * Math.min(policy.firstMs * 2 ** Math.min(tries - 1, 32), policy.maxMs);
}

const PASSING = new Set([429, 502, 503, 504]);

export class Requester {
  constructor(
    private readonly baseUrl: string,
    private readonly headers: Record<string, string>,
    private readonly timeoutMs: number,
    private readonly retries: RetryPolicy,
    private readonly fetch: typeof globalThis.fetch,
    private readonly clock: Clock,
  ) {}

  /** What answers `request`. Rejects with a `ForwarderError`, or with the reason of the caller's signal. */
  async answer(request: ApiRequest): Promise<Answer> {
    const begun = this.clock.monotonic();
    for (let tries = 1; ; tries++) {
      const result = await this.try(request);
      if (!(result instanceof Error)) return result;
      if (request.repeatable === false && !(result instanceof RateLimited)) throw result;
      const pause = pauseMs(this.retries, tries, Math.random(), result.retryAfterSeconds);
      if (this.clock.monotonic() - begun + pause > this.retries.totalMs) throw result;
      await this.clock.sleep(pause, request.signal);
    }
  }

  /** The answer, or the trouble that may pass. Throws what will not. */
  private async try(request: ApiRequest): Promise<Answer | Unavailable | RateLimited> {
    const { url, sent } = this.made(request); // throws for a header or a time limit that is none: that passes for no caller
    let answer: Response;
    let body: string;
    try {
      answer = await this.fetch(url, sent);
      body = await answer.text();
    } catch (error) {
      request.signal?.throwIfAborted();
      return new Unavailable(`no answer to ${request.method} ${request.path}: ${reason(error)}`, undefined, undefined, { cause: error });
    }
    if (answer.ok) return { status: answer.status, headers: answer.headers, members: membersOf(answer, body) };
    const trouble = errorOf(answer, body, this.clock.now());
    if (passes(answer, trouble)) return trouble;
    throw trouble;
  }

  private made(request: ApiRequest): { url: string; sent: RequestInit } {
    const query = request.query?.toString();
    const limit = AbortSignal.timeout(this.timeoutMs + (request.waitSeconds ?? 0) * 1000);
    const posts: Record<string, string> = request.body === undefined ? {} : { "Content-Type": "application/json" };
    const sent: RequestInit = {
      method: request.method,
      headers: new Headers({ ...this.headers, ...posts, ...request.headers }),
      redirect: "manual",
      signal: request.signal ? AbortSignal.any([limit, request.signal]) : limit,
      ...(request.body === undefined ? {} : { body: request.body }),
    };
    return { url: `${this.baseUrl}${request.path}${query ? `?${query}` : ""}`, sent };
  }
}

/** Whether the trouble is temporary. A problem of a submission is its outcome, and never temporary. */
function passes(answer: Response, trouble: ForwarderError): trouble is Unavailable | RateLimited {
  const may = trouble instanceof Unavailable || trouble instanceof RateLimited;
  return may && PASSING.has(answer.status) && trouble.problem?.requestId === undefined;
}

function membersOf(answer: Response, body: string): Record<string, unknown> {
  try {
    const members: unknown = JSON.parse(body);
    if (typeof members === "object" && members !== null && !Array.isArray(members)) return members as Record<string, unknown>;
  } catch {
    // Said below.
  }
  const unexpected = new Unexpected(`${answer.status} from ${answer.url}: a JSON object was expected`);
  unexpected.httpRequestId = answer.headers.get("request-id") ?? undefined;
  throw unexpected;
}

/** The reason of a failed fetch: its cause says more than "fetch failed". */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}

/** The `data` of an answer. Throws `Unexpected` where it is no object. */
export function dataOf(answer: Answer): Record<string, unknown> {
  const data = answer.members["data"];
  if (typeof data !== "object" || data === null || Array.isArray(data)) throw new Unexpected("the answer has no data");
  return data as Record<string, unknown>;
}

/** The parameters that have a value. */
export function queryOf(parameters: Record<string, unknown>): URLSearchParams {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
}
