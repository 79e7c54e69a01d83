import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Conflict,
  ForwarderClient,
  ForwarderError,
  NotAllowed,
  NotFound,
  OutcomeTimeout,
  RateLimited,
  Refused,
  Unavailable,
  Unexpected,
  withKeys,
  type Item,
  type ItemResult,
} from "../src/index.js";
import { pauseMs } from "../src/requests.js";
import { accepted, BOOKING, problem, REQUEST_ID, Scripted, standing } from "./scripted.js";

const AWAY = problem(503, "log_unavailable", { "Retry-After": "2", "Request-Id": "req_away" });

async function collected<T>(from: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of from) all.push(one);
  return all;
}

for (const [name, trouble] of Object.entries({
  "no connection": new TypeError("fetch failed"),
  "429": problem(429, "rate_limited", { "Retry-After": "2" }),
  "502": { status: 502, text: "" },
  "503": AWAY,
  "504": { status: 504, text: "" },
})) {
  test(`${name} is waited out under one key`, async () => {
    const service = new Scripted(trouble, trouble, accepted({ "Idempotent-Replayed": "true", "Request-Id": "req_1" }));
    const told = await service.client().submit(BOOKING);
    assert.equal(told.requestId, REQUEST_ID);
    assert.deepEqual([told.idempotentReplayed, told.httpRequestId, told.warnings], [true, "req_1", []]);
    assert.deepEqual(new Set(service.sent.map((one) => one.headers.get("idempotency-key"))), new Set([`"${told.idempotencyKey}"`]));
    assert.equal(service.sent.length, 3);
    assert.deepEqual(JSON.parse(service.sent[2]?.body ?? ""), BOOKING);
    assert.equal(service.sent[0]?.url.href, "http://forwarder.test/api/v1/vrs/reservations/booking-engine");
  });
}

test("an answer without a requestId is not one, and what was sent keeps its keys", async () => {
  const service = new Scripted({ status: 202, json: { data: {} } }, accepted());
  const client = service.client();
  await assert.rejects(client.submit(BOOKING), Unexpected);
  await client.submit(BOOKING);
  const [first, second] = service.sent.map((one) => one.headers.get("idempotency-key"));
  assert.equal(first, second);
  for (const results of [[{}], [null], [5]]) {
    const bulk = collected(new Scripted({ status: 207, json: { data: { results } } }).client().submitMany([{ operation: "booking-engine", reservation: BOOKING }]));
    await assert.rejects(bulk, (error: Unexpected) => error instanceof Unexpected && error.items.length === 1);
  }
});

test("a key that no header takes is the caller's mistake, and no outage", async () => {
  const service = new Scripted(accepted());
  await assert.rejects(service.client().submit(BOOKING, { idempotencyKey: "予約-42" }), TypeError);
  assert.deepEqual([service.sent.length, service.clock.monotonic()], [0, 0]);
});

test("each submission has a key of its own, or the caller's", async () => {
  const service = new Scripted(accepted());
  const client = service.client();
  await client.submit(BOOKING);
  await client.submit(BOOKING);
  await client.submit(BOOKING, { idempotencyKey: 'order "42" \\ a', wait: 5, deadline: 300 });
  const keys = service.sent.map((one) => one.headers.get("idempotency-key"));
  assert.notEqual(keys[0], keys[1]);
  assert.equal(keys[2], '"order \\"42\\" \\\\ a"');
  assert.deepEqual([service.sent[2]?.headers.get("prefer"), service.sent[2]?.headers.get("forward-deadline")], ["wait=5", "300"]);
});

test("a second call with the same object has the key of the one that failed", async () => {
  const cut = { status: 202, text: "" };
  const service = new Scripted(cut, accepted());
  const client = service.client();
  const failed = await client.submit(BOOKING).catch((error: unknown) => error);
  assert.ok(failed instanceof Unexpected);
  const again = await client.submit(BOOKING);
  const another = await client.submit(BOOKING);
  assert.equal(again.idempotencyKey, failed.idempotencyKey);
  assert.notEqual(another.idempotencyKey, again.idempotencyKey);
  const keys = service.sent.map((one) => one.headers.get("idempotency-key"));
  assert.equal(keys[0], keys[1]);
});

test("an account named again has the keys of its calls that failed", async () => {
  const cut = { status: 202, text: "" };
  const service = new Scripted(cut, cut, accepted());
  const client = service.client();
  for (let call = 0; call < 2; call++) await assert.rejects(client.forAccount("alpha-2").submit(BOOKING), Unexpected);
  await client.submit(BOOKING);
  await client.forAccount("alpha-2").submit(BOOKING);
  const keys = service.sent.map((one) => one.headers.get("idempotency-key"));
  assert.deepEqual([keys[1], keys[3]], [keys[0], keys[0]]);
  assert.notEqual(keys[2], keys[0]);
});

test("it comes again no sooner than it is told, by number or by date", async () => {
  for (const again of ["7", "Fri, 01 Jan 2027 00:00:07 GMT"]) {
    const service = new Scripted(problem(503, "log_unavailable", { "Retry-After": again }), standing("PENDING"));
    await service.client().submission(REQUEST_ID);
    const waited = service.sent[1]?.at ?? 0;
    assert.ok(waited >= 7_000 && waited <= 7_200, String(waited));
  }
});

test("a Retry-After that cannot be kept, or cannot be read, is a wait of bounded length or none", async () => {
  for (const [again, seconds] of [
    ["9".repeat(400), 2_000_000],
    ["Fri, 31 Dec 9999 23:59:59 GMT", 2_000_000],
    ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT", undefined],
    ["1.5", undefined],
    ["soon", undefined],
  ] as const) {
    const service = new Scripted(...Array.from({ length: 40 }, () => problem(429, "rate_limited", { "Retry-After": again })));
    await assert.rejects(service.client().submission(REQUEST_ID), (error: unknown) => {
      return error instanceof RateLimited && error.retryAfterSeconds === seconds;
    });
  }
});

test("a problem of another shape is one of the status alone", async () => {
  const service = new Scripted(problem(422, "x", {}, { errors: 5 }));
  await assert.rejects(service.client().submission(REQUEST_ID), (error: unknown) => error instanceof Refused && error.problem.code === "");
});

test("pauses are drawn from a range that doubles up to a bound", () => {
  const policy = { totalMs: 0, firstMs: 500, maxMs: 6_000 };
  assert.deepEqual(
    [1, 2, 4, 5, 99].map((tries) => pauseMs(policy, tries, 1)),
    [500, 1_000, 4_000, 6_000, 6_000],
  );
  assert.equal(pauseMs(policy, 9, 0.5, 30), 33_000);
});

test("an outage longer than its patience is thrown with the key", async () => {
  const service = new Scripted(AWAY);
  await assert.rejects(service.client({ totalMs: 20_000 }).submit(BOOKING, { idempotencyKey: "order-42" }), (error) => {
    assert.ok(error instanceof Unavailable);
    assert.deepEqual([error.idempotencyKey, error.httpRequestId, error.problem?.code], ["order-42", "req_away", "log_unavailable"]);
    return true;
  });
  assert.ok(service.sent.length >= 3 && service.sent.every((one) => one.at <= 20_000));
});

test("a limit longer than its patience is thrown at once", async () => {
  const service = new Scripted(problem(429, "rate_limited", { "Retry-After": "3600" }));
  await assert.rejects(service.client().submission(REQUEST_ID), (error) => error instanceof RateLimited && error.retryAfterSeconds === 3600);
  assert.equal(service.sent.length, 1);
});

for (const [status, kind] of [[400, Refused], [401, NotAllowed], [403, NotAllowed], [404, NotFound], [409, Conflict], [422, Refused]] as const) {
  test(`${status} is not sent again`, async () => {
    const service = new Scripted(problem(status, "no", { "Request-Id": "req_9" }, { errors: [{ pointer: "/currency", code: "x", detail: "wrong" }] }));
    await assert.rejects(service.client().submit(BOOKING), (error) => {
      assert.ok(error instanceof kind && error instanceof Refused);
      assert.deepEqual([error.code, error.httpRequestId, error.problem.errors?.[0]?.pointer], ["no", "req_9", "/currency"]);
      return error.name === kind.name && error.message.includes("/currency: wrong");
    });
    assert.equal(service.sent.length, 1);
  });
}

test("a rejection within the wait is an answer, and a key that is reused is not", async () => {
  const rejected = problem(409, "room_unavailable", {}, { requestId: REQUEST_ID });
  const told = await new Scripted(rejected).client().submit(BOOKING, { wait: 5 });
  assert.deepEqual([told.status, told.problem?.code, told.requestId], ["REJECTED", "room_unavailable", REQUEST_ID]);
  const reused = problem(422, "idempotency_key_reused", {}, { requestId: REQUEST_ID });
  await assert.rejects(new Scripted(reused).client().submit(BOOKING), Refused);
});

test("a cancellation that failed is an outcome and no outage", async () => {
  const service = new Scripted(problem(503, "cancellation_failed", {}, { requestId: REQUEST_ID }));
  await assert.rejects(service.client().cancel(REQUEST_ID, { wait: 10, reason: "ill" }), Unavailable);
  assert.equal(service.sent.length, 1);
  assert.equal(service.sent[0]?.body, '{"reason":"ill"}');
});

test("a service that waits is asked again at once, one that does not after pauses that grow", async () => {
  const confirmed = standing("CONFIRMED", { record: { id: 1 } });
  const waits = new Scripted(standing("PENDING", {}, 30_000), confirmed);
  const outcome = await waits.client().wait(REQUEST_ID);
  assert.equal(outcome.status, "CONFIRMED");
  assert.deepEqual(waits.sent.map((one) => [one.at, one.headers.get("prefer")]), [[0, "wait=30"], [30_000, "wait=30"]]);
  const hurries = new Scripted(...Array.from({ length: 5 }, () => standing("PENDING")), confirmed);
  await hurries.client().wait(REQUEST_ID);
  assert.deepEqual(hurries.sent.map((one) => one.at), [0, 200, 600, 1_400, 3_000, 5_000]);
});

test("who waits in vain is told how it stands", async () => {
  const service = new Scripted(standing("PENDING"));
  await assert.rejects(service.client().wait(REQUEST_ID, { timeoutMs: 9_000 }), (error) => {
    return error instanceof OutcomeTimeout && error.submission.status === "PENDING";
  });
  assert.equal(service.clock.monotonic(), 9_000);
});

test("an outcome without a reservation has its problem, and one that is added later is passed on", async () => {
  const problemOf = { type: "/problems/delivery_failed", title: "x", status: 503, detail: "", code: "delivery_failed" };
  const failed = await new Scripted(standing("FAILED", { problem: problemOf })).client().wait(REQUEST_ID);
  assert.ok(failed.status === "FAILED" && failed.problem.code === "delivery_failed");
  const added = await new Scripted(standing("ON_HOLD")).client().wait(REQUEST_ID);
  assert.equal(added.status as string, "ON_HOLD");
});

test("pages follow one another, with the filters by the names of the contract", async () => {
  const page = (next: string): { status: number; json: unknown } => ({
    status: 200,
    json: { data: [{ id: next ? 1 : 2 }], meta: { limit: 1, cursors: { previous: "", current: "1", next } } },
  });
  const service = new Scripted(page("21"), page(""));
  const found = await collected(service.client().reservations({ pageSize: 1, status: ["CONFIRMED", "CANCELLED"], arrivalFrom: "2027-06-01", order: "desc" }));
  assert.deepEqual(found.map((one) => one.id), [1, 2]);
  assert.deepEqual(service.sent.map((one) => one.url.searchParams.get("cursor")), [null, "21"]);
  const { cursor, ...asked } = Object.fromEntries(service.sent[1]?.url.searchParams ?? []);
  assert.deepEqual([cursor, asked], ["21", { status: "CONFIRMED,CANCELLED", arrivalFrom: "2027-06-01", order: "desc", limit: "1" }]);
});

test("many are sent in bulks under keys, and told of one by one", async () => {
  const safe = { success: true, requestId: REQUEST_ID, status: "PENDING" };
  const bulk = (...results: object[]): { status: number; json: unknown } => ({ status: 200, json: { data: { results } } });
  const service = new Scripted(AWAY, bulk({ ...safe, idempotentReplayed: true }, { success: false, problem: { code: "validation_failed" } }), bulk(safe));
  const items: Item[] = ["a", "b", undefined].map((key) => ({
    operation: "booking-engine",
    reservation: BOOKING,
    ...(key && { idempotencyKey: key }),
  }));
  const told: ItemResult[] = await collected(service.client().submitMany(items, { bulkSize: 2 }));
  assert.deepEqual(told.map((one) => one.accepted), [true, false, true]);
  assert.deepEqual(told.map((one) => one.accepted && one.idempotentReplayed), [true, false, false]);
  assert.equal(service.sent[0]?.body, service.sent[1]?.body);
  assert.equal(told[0]?.idempotencyKey, "a");
  assert.equal((JSON.parse(service.sent[2]?.body ?? "") as Item[])[0]?.idempotencyKey, told[2]?.idempotencyKey);
  await assert.rejects(collected(new Scripted(bulk(safe)).client().submitMany(items)), Unexpected);
});

test("a dry run says so in its address, and another account in its header", async () => {
  const service = new Scripted({ status: 200, json: { data: { dryRun: true, accountKind: "generic" } } });
  const tried = await service.client().forAccount("alpha-2").dryRun(BOOKING);
  assert.equal(tried.accountKind, "generic");
  assert.equal(service.sent[0]?.url.search, "?dryRun=true");
  assert.equal(service.sent[0]?.headers.get("integrationaccountid"), "alpha-2");
  assert.equal(service.sent[0]?.headers.get("idempotency-key"), null);
});

test("what is no answer of the service is said to be none", async () => {
  for (const step of [{ status: 200, text: "<html>" }, { status: 200, json: [] }, { status: 200, json: { data: [] } }, { status: 302, text: "" }]) {
    await assert.rejects(new Scripted(step).client().submission(REQUEST_ID), Unexpected);
  }
  await assert.rejects(new Scripted({ status: 403, text: "<html>" }).client().submission(REQUEST_ID), (error) => error instanceof NotAllowed && error.code === "");
});

test("a call that is given up rejects with its reason, and is not made again", async () => {
  const given = new AbortController();
  const service = new Scripted(new TypeError("fetch failed"));
  given.abort(new Error("no longer wanted"));
  await assert.rejects(service.client().submit(BOOKING, { signal: given.signal }), /no longer wanted/);
  assert.equal(service.sent.length, 1);
});

/** Never called: it compiles only while each of these is found. */
export function misspelt(client: ForwarderClient): void {
  // @ts-expect-error a field that there is not
  void client.submit({ ...BOOKING, curency: "EUR" });
  // @ts-expect-error another value than the contract has
  void client.submit({ ...BOOKING, morChannel: "HOST" });
  // @ts-expect-error a field is missing
  void client.submitGeneral({ propertyId: 1, arrivalDate: "2031-06-01", guest: {} });
  // @ts-expect-error a filter that there is not
  client.reservations({ propertyid: 1 });
}

test("an error of a bulk has what was taken and nothing was told of: sent again with the rest, all are told of once", async () => {
  const safe = { success: true, requestId: REQUEST_ID, status: "PENDING" };
  const answered = (...results: object[]): { status: number; json: unknown } => ({ status: 200, json: { data: { results } } });
  function* rooms(): Generator<Item> {
    for (const number of [1, 2, 3, 4, 5]) yield { operation: "booking-engine", reservation: { ...BOOKING, roomId: `R-${number}` } };
  }
  for (const [trouble, kind] of [[AWAY, Unavailable], [problem(401, "unauthenticated"), NotAllowed], [answered(), Unexpected]] as const) {
    const service = new Scripted(answered(safe, safe), trouble, answered(safe, safe, safe));
    const client = service.client({ totalMs: 0 });
    const left = rooms();
    const told: ItemResult[] = [];
    const submit = async (items: Iterable<Item>, bulkSize: number): Promise<void> => {
      for await (const one of client.submitMany(items, { bulkSize })) told.push(one);
    };
    let unknown: readonly Item[] = [];
    await assert.rejects(submit(left, 2), (error) => {
      assert.ok(error instanceof kind && error instanceof ForwarderError);
      unknown = error.items;
      return true;
    });
    assert.deepEqual(unknown, JSON.parse(service.sent[1]?.body ?? ""));
    await submit([...unknown, ...left], 9);
    assert.equal(told.length, 5);
    const again = JSON.parse(service.sent[2]?.body ?? "") as { reservation: { roomId: string } }[];
    assert.deepEqual(again.map((one) => one.reservation.roomId), ["R-3", "R-4", "R-5"]);
    assert.deepEqual(again.slice(0, 2), unknown);
  }
});

test("keys can be had before anything is sent, and a lost bulk is sent again under them", async () => {
  const safe = { success: true, requestId: REQUEST_ID, status: "PENDING" };
  const items = withKeys([
    { operation: "booking-engine", reservation: BOOKING, idempotencyKey: "order-1" },
    { operation: "booking-engine", reservation: BOOKING },
  ]);
  const service = new Scripted(new TypeError("fetch failed"), { status: 200, json: { data: { results: [safe, safe] } } });
  const client = service.client({ totalMs: 0 });
  await assert.rejects(collected(client.submitMany(items)), (error) => {
    assert.ok(error instanceof Unavailable);
    assert.deepEqual(error.items, items);
    return items[0]?.idempotencyKey === "order-1";
  });
  const told = await collected(client.submitMany(items));
  assert.deepEqual(told.map((one) => one.idempotencyKey), items.map((one) => one.idempotencyKey));
  assert.equal(service.sent[0]?.body, service.sent[1]?.body);
});
