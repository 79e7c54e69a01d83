/**
 * What the service, or the way to it, can say instead of what was asked for.
 *
 *     ForwarderError
 *     ├── Refused            4xx: sending the same again brings the same answer
 *     │   ├── NotAllowed     401, 403: the key is unknown, or is not for this
 *     │   ├── NotFound       404
 *     │   ├── Conflict       409: it contradicts how things stand
 *     │   └── RateLimited    429, for longer than the retry policy allows
 *     ├── Unavailable        no answer, or 5xx, for longer than the retry policy allows
 *     ├── Unexpected         an answer that is none of the service's
 *     └── OutcomeTimeout     no outcome yet, after waiting
 */

import type { KeyedItem, Problem, Submission } from "./types.js";

export class ForwarderError extends Error {
  /** Names the request in the service's log, where that answered: quote it when you ask about it. */
  httpRequestId: string | undefined;
  /**
   * The key of a failed submission. Submit it again under that key: the reservation may have been accepted. A second call with the
   * same reservation object uses it by itself.
   */
  idempotencyKey: string | undefined;
  /**
   * From `submitMany`: the items that were taken but have no result, each under its key. Submit them again, followed by the rest,
   * and none is booked twice.
   */
  items: readonly KeyedItem[] = [];

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The service said no. Branch on `code`, which is empty where something else than the service answered. */
export class Refused extends ForwarderError {
  constructor(readonly problem: Problem) {
    super(told(problem));
  }

  get code(): string {
    return this.problem.code;
  }
}

/** The API key is unknown or expired, or not for this: `problem.scope` is the scope that it lacks. */
export class NotAllowed extends Refused {}

/** There is no such submission, reservation or account, as far as this key can see. */
export class NotFound extends Refused {}

/** It contradicts how things stand: branch on `code`. */
export class Conflict extends Refused {}

/** The key's rate is used up. `retryAfterSeconds`: until there is room again, where the service said. */
export class RateLimited extends Refused {
  constructor(
    problem: Problem,
    readonly retryAfterSeconds: number | undefined,
  ) {
    super(problem);
  }
}

/**
 * It is not known whether the call took effect. Make the same call again later; a submission under its `idempotencyKey`.
 * `problem` is undefined where nothing answered.
 */
export class Unavailable extends ForwarderError {
  constructor(
    message: string,
    readonly problem?: Problem,
    readonly retryAfterSeconds?: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** What answered does not speak this contract. */
export class Unexpected extends ForwarderError {}

/** There was no outcome within the time. Nothing is lost: wait again, now or after a restart, by `submission.requestId`. */
export class OutcomeTimeout extends ForwarderError {
  constructor(
    readonly submission: Submission,
    timeoutMs: number,
  ) {
    super(`${submission.requestId} has no outcome after ${timeoutMs} ms`);
  }
}

/** The error that an answer, which is not of the 2xx, is. `body` is its text. */
export function errorOf(answer: Response, body: string, now: number): ForwarderError {
  const error = kindOf(answer, problemOf(answer, body), retryAfterSeconds(answer, now));
  error.httpRequestId = answer.headers.get("request-id") ?? undefined;
  return error;
}

function kindOf(answer: Response, problem: Problem, again: number | undefined): ForwarderError {
  if (answer.status < 400) return new Unexpected(`${answer.status} from ${answer.url}: not an answer of the service`);
  if (answer.status >= 500) return new Unavailable(told(problem), problem, again);
  switch (answer.status) {
    case 401:
    case 403:
      return new NotAllowed(problem);
    case 404:
      return new NotFound(problem);
    case 409:
      return new Conflict(problem);
    case 429:
      return new RateLimited(problem, again);
    default:
      return new Refused(problem);
  }
}

/** Seconds that a longer `Retry-After` counts as: timers have no room for more. */
const MAX_RETRY_AFTER = 2_000_000;

function isProblem(members: unknown): members is Problem {
  if (typeof members !== "object" || members === null) return false;
  const { code, errors = [] } = members as { code?: unknown; errors?: unknown };
  return typeof code === "string" && Array.isArray(errors) && errors.every((fault) => typeof fault === "object" && fault !== null);
}

/** The problem that is answered; where it is none, such as a proxy's own page, one made of the status alone. */
function problemOf(answer: Response, body: string): Problem {
  try {
    const members: unknown = JSON.parse(body);
    if (isProblem(members)) return members;
  } catch {
    // Not JSON.
  }
  return { type: "about:blank", title: answer.statusText || "Refused", status: answer.status, detail: "", code: "" };
}

/** The seconds that `Retry-After` names, by number or by date; undefined without a valid one. */
function retryAfterSeconds(answer: Response, now: number): number | undefined {
  const text = answer.headers.get("retry-after")?.trim() ?? "";
  if (/^\d+$/.test(text)) return Math.min(Number(text), MAX_RETRY_AFTER);
  // Date.parse takes "1.5" for a day in January; a date in a header begins with a name of a day.
  const at = /^[A-Za-z]/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.min(Math.max((at - now) / 1000, 0), MAX_RETRY_AFTER);
}

function told(problem: Problem): string {
  const faults = (problem.errors ?? []).map((fault) => `; ${fault.pointer}: ${fault.detail}`).join("");
  return `${problem.status} ${problem.code || problem.title}: ${problem.detail}${faults}`;
}
