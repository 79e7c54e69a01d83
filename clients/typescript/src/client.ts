/** The client: the service's operations as methods. */

import { bulks, type Bulk } from "./bulk.js";
import { ForwarderError, OutcomeTimeout, Refused, Unexpected } from "./errors.js";
import { Webhooks } from "./management.js";
import {
  dataOf,
  DEFAULT_RETRIES,
  machineClock,
  pauseMs,
  queryOf,
  Requester,
  type Answer,
  type ApiRequest,
  type Clock,
  type RetryPolicy,
} from "./requests.js";
import type {
  BookingEngineReservation,
  Cancelling,
  DryRun,
  Filters,
  GeneralReservation,
  Item,
  ItemResult,
  Outcome,
  Page,
  Problem,
  Reservation,
  Submission,
  SubmissionWarning,
  Submitted,
} from "./types.js";

const RESERVATIONS = "/api/v1/vrs/reservations";
const BOOKING_ENGINE = `${RESERVATIONS}/booking-engine`;
const SUBMISSIONS = "/api/v1/vrs/submissions";
const MAX_PAGE = 200;
const MAX_WAIT_SECONDS = 30;
const LOOKS: RetryPolicy = { totalMs: 0, firstMs: 200, maxMs: 2_000 };

export interface ClientOptions {
  /** Where the service is, without `/api`; all of its stages, as a proxy puts them together. */
  baseUrl: string;
  token: string;
  workspace: string;
  /** The integration account that selects the PMS. */
  account: string;
  /** How long one try may take, in addition to the time for which it lets the service wait. 30 s. */
  timeoutMs?: number;
  retries?: Partial<RetryPolicy>;
  /** Another `fetch`: for a proxy, or a test without a network. */
  fetch?: typeof globalThis.fetch;
  clock?: Clock;
}

export interface CallOptions {
  /** Gives the call up: what was sent may have taken effect all the same. */
  signal?: AbortSignal;
}

export interface SubmitOptions extends CallOptions {
  /**
   * Every call with the same key is the same submission. Without one, the client makes a key that only the tries of this call
   * share.
   */
  idempotencyKey?: string;
  /** Seconds to wait for the outcome, which may be REJECTED: that is an answer, not an error. */
  wait?: number;
  /** The seconds for which it is worth forwarding. */
  deadline?: number;
}

/** One integration account of a workspace, as its API key may use it. Any number of calls may be under way at once. */
export class ForwarderClient {
  /** The workspace's webhooks. */
  readonly webhooks: Webhooks;
  private readonly requester: Requester;
  private readonly clock: Clock;
  /** The keys of calls that failed, by the account, and the reservation that they submitted: it may have been accepted. */
  private failed = new Map<string, WeakMap<object, { body: string; idempotencyKey: string }>>();

  constructor(private readonly options: ClientOptions) {
    this.clock = options.clock ?? machineClock;
    this.requester = new Requester(
      options.baseUrl.replace(/\/+$/, ""),
      {
        Authorization: `Bearer ${options.token}`,
        workspaceId: options.workspace,
        integrationAccountId: options.account,
        Accept: "application/json",
      },
      options.timeoutMs ?? 30_000,
      { ...DEFAULT_RETRIES, ...options.retries },
      options.fetch ?? globalThis.fetch.bind(globalThis),
      this.clock,
    );
    this.webhooks = new Webhooks(this.requester);
  }

  /** The same client for another integration account of the workspace. */
  forAccount(account: string): ForwarderClient {
    const other = new ForwarderClient({ ...this.options, account });
    other.failed = this.failed;
    return other;
  }

  /**
   * Submit a booking engine's reservation. It is safe when this resolves, and usually `PENDING`.
   * Rejects with `Refused` where it was not accepted, and with `Unavailable`, with the key, where that is not known.
   */
  submit(reservation: BookingEngineReservation, options: SubmitOptions = {}): Promise<Submitted> {
    return this.submitAt(BOOKING_ENGINE, reservation, options);
  }

  /** Submit a reservation of which little need be known. As `submit`, but without `wait` it waits for a while; 0 does not. */
  submitGeneral(reservation: GeneralReservation, options: SubmitOptions = {}): Promise<Submitted> {
    return this.submitAt(RESERVATIONS, reservation, options);
  }

  /**
   * Submit `items` in bulks, and yield for each, in their order, whether it was accepted, as soon as its bulk is answered.
   * A refused item does not affect the others. Throws `Unavailable` if a bulk gets no answer, and `Refused` if it is refused as a
   * whole: results already yielded are final; the error's `items` are the others taken from `items`, under their keys, to be
   * submitted again. `withKeys` makes the keys before anything is sent.
   */
  async *submitMany(items: Iterable<Item>, options: CallOptions & { bulkSize?: number } = {}): AsyncGenerator<ItemResult> {
    for (const bulk of bulks(items, options.bulkSize)) yield* await this.submitBulk(bulk, options);
  }

  /** What would come of `reservation`; nothing is made of it. */
  dryRun(reservation: BookingEngineReservation, options: CallOptions = {}): Promise<DryRun> {
    return this.dryRunAt(BOOKING_ENGINE, reservation, options);
  }

  /** As `dryRun`, for what `submitGeneral` takes. */
  dryRunGeneral(reservation: GeneralReservation, options: CallOptions = {}): Promise<DryRun> {
    return this.dryRunAt(RESERVATIONS, reservation, options);
  }

  /**
   * Ask for the cancellation of a submission, by its `requestId` or its reservation's `id`; asking again changes nothing. Up to
   * `wait` seconds for what comes of it. Rejects with `Refused` where nothing was made, or the PMS said no.
   */
  async cancel(identifier: string | number, options: CallOptions & { reason?: string; wait?: number } = {}): Promise<Cancelling> {
    const body = JSON.stringify(options.reason === undefined ? {} : { reason: options.reason });
    const path = `${RESERVATIONS}/${encodeURIComponent(identifier)}/cancel`;
    const answer = await this.post(path, body, { ...options, headers: preference(options.wait) });
    const cancellation = answer.status === 202 ? (dataOf(answer)["cancellation"] as Cancelling["cancellation"]) : undefined;
    return { ...submitted(answer), ...(cancellation && { cancellation }) };
  }

  /** The state of a submission, with every attempt. Rejects with `NotFound` (`submission_not_found`). */
  submission(requestId: string, options: CallOptions = {}): Promise<Submission> {
    return this.look(requestId, 0, options);
  }

  /**
   * The outcome once there is one. Rejects with `OutcomeTimeout` after `timeoutMs` (60 s). The service is asked to answer when the
   * outcome comes; where it answers sooner, pauses that grow lie between two requests.
   */
  async wait(requestId: string, options: CallOptions & { timeoutMs?: number } = {}): Promise<Outcome> {
    const { timeoutMs = 60_000 } = options;
    const until = this.clock.monotonic() + timeoutMs;
    for (let looks = 0; ; ) {
      const begun = this.clock.monotonic();
      const seconds = Math.max(Math.min(Math.floor((until - begun) / 1000), MAX_WAIT_SECONDS), 0);
      const seen = await this.look(requestId, seconds, options);
      if (seen.status !== "PENDING") return outcomeOf(seen);
      const now = this.clock.monotonic();
      if (now >= until) throw new OutcomeTimeout(seen, timeoutMs);
      looks = seconds > 0 && now - begun >= seconds * 1000 ? 0 : looks + 1;
      if (looks) await this.clock.sleep(Math.min(pauseMs(LOOKS, looks, 1), until - now), options.signal);
    }
  }

  /** One reservation, in any status. Rejects with `NotFound` (`reservation_not_found`). */
  async reservation(id: number, options: CallOptions = {}): Promise<Reservation> {
    return dataOf(await this.get(`${RESERVATIONS}/${id}`, options)) as unknown as Reservation;
  }

  /**
   * The account's reservations, a page at a time, from `cursor` on. Each reservation that was there when the first page was read
   * comes exactly once.
   */
  async *pages(filters: Filters & { pageSize?: number; cursor?: string } = {}, options: CallOptions = {}): AsyncGenerator<Page> {
    const { pageSize = MAX_PAGE, cursor = "", ...asked } = filters;
    for (let from = cursor; ; ) {
      const answer = await this.get(RESERVATIONS, { ...options, query: queryOf({ ...asked, limit: pageSize, cursor: from }) });
      const page = pageOf(answer);
      yield page;
      from = page.cursors.next ?? "";
      if (!from) return;
    }
  }

  /** The account's reservations, oldest first unless `order` says otherwise, page after page as they are asked for. */
  async *reservations(filters: Filters & { pageSize?: number } = {}, options: CallOptions = {}): AsyncGenerator<Reservation> {
    for await (const page of this.pages(filters, options)) yield* page.reservations;
  }

  private async submitAt(path: string, reservation: object, options: SubmitOptions): Promise<Submitted> {
    const body = JSON.stringify(reservation);
    const failed = this.failed.get(this.options.account) ?? new WeakMap();
    this.failed.set(this.options.account, failed);
    const before = failed.get(reservation);
    const idempotencyKey = options.idempotencyKey ?? (before?.body === body ? before.idempotencyKey : newKey());
    const headers: Record<string, string> = { "Idempotency-Key": quoted(idempotencyKey), ...preference(options.wait) };
    if (options.deadline !== undefined) headers["Forward-Deadline"] = String(options.deadline);
    try {
      const told = await this.post(path, body, { ...options, headers }).then(submitted, (error: unknown) => {
        if (error instanceof Refused) return rejected(error);
        throw error;
      });
      failed.delete(reservation);
      return { ...told, idempotencyKey };
    } catch (error) {
      if (error instanceof ForwarderError) error.idempotencyKey = idempotencyKey;
      const reused = error instanceof Refused && error.code === "idempotency_key_reused";
      if (!reused) failed.set(reservation, { body, idempotencyKey });
      throw error;
    }
  }

  private async submitBulk(bulk: Bulk, options: CallOptions): Promise<ItemResult[]> {
    try {
      const results = dataOf(await this.post(`${RESERVATIONS}/bulk`, bulk.body, options))["results"];
      if (!Array.isArray(results) || results.length !== bulk.items.length) {
        throw new Unexpected(`the answer does not tell of ${bulk.items.length} items`);
      }
      return bulk.items.map((item, index) => itemResult(results[index], item.idempotencyKey));
    } catch (error) {
      if (error instanceof ForwarderError) error.items = [...bulk.items, ...bulk.following];
      throw error;
    }
  }

  private async dryRunAt(path: string, reservation: unknown, options: CallOptions): Promise<DryRun> {
    const query = new URLSearchParams({ dryRun: "true" });
    const answer = await this.post(path, JSON.stringify(reservation), { ...options, query });
    return dataOf(answer) as unknown as DryRun;
  }

  private async look(requestId: string, seconds: number, options: CallOptions): Promise<Submission> {
    const path = `${SUBMISSIONS}/${encodeURIComponent(requestId)}`;
    const headers = seconds ? preference(seconds) : {};
    return dataOf(await this.get(path, { ...options, headers, wait: seconds })) as unknown as Submission;
  }

  private get(path: string, options: Options): Promise<Answer> {
    return this.requester.answer(requestOf("GET", path, options));
  }

  private post(path: string, body: string, options: Options): Promise<Answer> {
    return this.requester.answer({ ...requestOf("POST", path, options), body });
  }
}

interface Options extends CallOptions {
  headers?: Record<string, string>;
  query?: URLSearchParams;
  wait?: number;
}

function requestOf(method: "GET" | "POST", path: string, { headers, query, wait, signal }: Options): ApiRequest {
  return { method, path, waitSeconds: wait ?? 0, ...(headers && { headers }), ...(query && { query }), ...(signal && { signal }) };
}

/** What the answer to a submission says: that it was accepted, or its record. */
function submitted({ status, headers, members }: Answer): Submitted {
  const data = dataOf({ status, headers, members });
  const record = status === 202 ? undefined : (data as unknown as Reservation);
  const { statusUrl } = data as { statusUrl?: string };
  const duplicateOf = headers.get("duplicate-of");
  const httpRequestId = headers.get("request-id");
  return {
    requestId: requestIdOf(data),
    status: data["status"] as Submitted["status"],
    warnings: (members["warnings"] as SubmissionWarning[] | undefined) ?? [],
    idempotentReplayed: headers.get("idempotent-replayed") === "true",
    ...(record && { record }),
    ...(statusUrl && { statusUrl }),
    ...(duplicateOf && { duplicateOf }),
    ...(httpRequestId && { httpRequestId }),
  };
}

/** A submission that ended REJECTED within the wait: that is answered as a problem which names it. Throws where it was not accepted. */
function rejected(refused: Refused): Submitted {
  const { problem, httpRequestId } = refused;
  if (problem.requestId === undefined || problem.code === "idempotency_key_reused") throw refused;
  const { requestId } = problem;
  return { requestId, status: "REJECTED", problem, warnings: [], idempotentReplayed: false, ...(httpRequestId && { httpRequestId }) };
}

function outcomeOf(submission: Submission): Outcome {
  const { status, record, problem } = submission;
  if ((status === "CONFIRMED" || status === "CANCELLED") && record) return { status, record, submission };
  if ((status === "REJECTED" || status === "FAILED" || status === "IN_DOUBT") && problem) return { status, problem, submission };
  // A status that a later contract has added: as it is, for the caller's `default`.
  return { status, record, problem, submission } as unknown as Outcome;
}

function itemResult(result: unknown, idempotencyKey: string): ItemResult {
  const told = (result ?? {}) as { problem?: Problem; requestId?: unknown; status: Submitted["status"]; idempotentReplayed?: boolean; duplicate?: boolean; warnings?: SubmissionWarning[] };
  if (told.problem) return { accepted: false, problem: told.problem, idempotencyKey };
  const { status, idempotentReplayed = false, duplicate = false, warnings = [] } = told;
  return { accepted: true, requestId: requestIdOf(told), status, idempotencyKey, idempotentReplayed, duplicate, warnings };
}

/** The id of the submission that was accepted. Throws where none is named: then it is not known to be accepted. */
function requestIdOf(data: { requestId?: unknown }): string {
  if (typeof data.requestId === "string") return data.requestId;
  throw new Unexpected("the answer names no requestId");
}

function pageOf(answer: Answer): Page {
  const { data, meta } = answer.members as { data?: Reservation[]; meta?: Omit<Page, "reservations"> };
  if (!Array.isArray(data) || !meta?.cursors) throw new Unexpected("the answer is not a page");
  return { reservations: data, limit: meta.limit, cursors: meta.cursors };
}

/** `Prefer` of one who waits so many seconds (RFC 7240); of one who says nothing, none. */
function preference(wait: number | undefined): Record<string, string> {
  if (wait === undefined) return {};
  return { Prefer: wait ? `wait=${wait}` : "respond-async" };
}

/** `key` as a string of structured fields (RFC 8941), which `Idempotency-Key` is. */
function quoted(key: string): string {
  return `"${key.replace(/[\\"]/g, "\\$&")}"`;
}

/** An idempotency key that nobody else has. */
function newKey(): string {
  return crypto.randomUUID();
}
