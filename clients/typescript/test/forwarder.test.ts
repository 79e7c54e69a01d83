/** Against a running forwarder, whose address and key the environment has: `. .forwarder/demo.env`, then `npm test`. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { ForwarderClient, NotFound, Refused, type GeneralReservation, type Item } from "../src/index.js";
import { BOOKING } from "./scripted.js";

const { FORWARDER_URL: baseUrl, FORWARDER_TOKEN: token, FORWARDER_WORKSPACE: workspace } = process.env;
const PATIENT = { timeoutMs: 120_000 };
const skip = baseUrl && token && workspace ? false : "FORWARDER_URL, FORWARDER_TOKEN and FORWARDER_WORKSPACE name no running forwarder";

function client(): ForwarderClient {
  return new ForwarderClient({ baseUrl: baseUrl ?? "", token: token ?? "", workspace: workspace ?? "", account: "demo-generic" });
}

function room(name: string): GeneralReservation {
  return {
    propertyId: 1001,
    roomId: `${name}-${randomUUID().slice(0, 8)}`,
    arrivalDate: "2031-08-01",
    departureDate: "2031-08-05",
    guest: { name: "Ana Ruiz", email: "ana.ruiz@example.com" },
  };
}

test("a booking is submitted, sent again, waited for, read, listed and cancelled", { skip }, async () => {
  const forwarder = client();
  const key = randomUUID();
  const booking = { ...BOOKING, roomId: `T-${key.slice(0, 8)}` };
  const first = await forwarder.submit(booking, { idempotencyKey: key });
  const again = await forwarder.submit(booking, { idempotencyKey: key });
  assert.equal(again.requestId, first.requestId);
  assert.deepEqual([first.idempotentReplayed, again.idempotentReplayed], [false, true]);
  assert.match(first.httpRequestId ?? "", /^req_/);

  const outcome = await forwarder.wait(first.requestId, PATIENT);
  assert.ok(outcome.status === "CONFIRMED", JSON.stringify(outcome));
  assert.equal(outcome.record.totalPrice, 480.5);
  assert.deepEqual(await forwarder.reservation(outcome.record.id), outcome.record);

  const listed: number[] = [];
  for await (const one of forwarder.reservations({ status: ["CONFIRMED"], order: "desc", pageSize: 1 })) {
    listed.push(one.id);
    if (one.id === outcome.record.id) break;
  }
  assert.equal(listed.at(-1), outcome.record.id);

  let cancelled = await forwarder.cancel(first.requestId, { reason: "The guest is ill.", wait: 20 });
  for (let tries = 1; cancelled.status !== "CANCELLED" && tries < 6; tries++) {
    cancelled = await forwarder.cancel(first.requestId, { wait: 20 }); // a busy machine takes its time
  }
  assert.equal(cancelled.status, "CANCELLED");
});

test("the general operation answers with the record, or where to follow it", { skip }, async () => {
  const forwarder = client();
  const told = await forwarder.submitGeneral(room("G"), { wait: 20 });
  const outcome = await forwarder.wait(told.requestId, PATIENT);
  assert.ok(outcome.status === "CONFIRMED");
  if (told.record) assert.deepEqual(told.record, outcome.record);
});

test("every page is followed once", { skip }, async () => {
  const forwarder = client();
  const made = new Set<string>();
  for (const name of ["P", "Q", "R"]) made.add((await forwarder.submitGeneral(room(name), { wait: 0 })).requestId);
  for (const requestId of made) await forwarder.wait(requestId, PATIENT);
  const seen: string[] = [];
  for await (const one of forwarder.reservations({ pageSize: 2 })) seen.push(one.requestId);
  assert.equal(new Set(seen).size, seen.length);
  for (const requestId of made) assert.ok(seen.includes(requestId));
});

test("what is wrong is refused with its pointer, and a dry run books nothing", { skip }, async () => {
  const forwarder = client();
  await assert.rejects(forwarder.submit({ ...BOOKING, numberOfGuests: 0 }), (error) => {
    return error instanceof Refused && error.code === "validation_failed" && error.problem.errors?.[0]?.pointer === "/numberOfGuests";
  });
  await assert.rejects(forwarder.submission(`rsv_${"a".repeat(32)}`), NotFound);
  const tried = await forwarder.dryRunGeneral(room("D"));
  assert.ok(tried.wouldSend?.requests.length);
});

test("a bulk tells of each item", { skip }, async () => {
  const items: Item[] = [
    { operation: "general", reservation: room("B"), deadlineSeconds: 300 },
    { operation: "booking-engine", reservation: { ...BOOKING, numberOfGuests: 0 } },
  ];
  const told = [];
  for await (const one of client().submitMany(items)) told.push(one.accepted || one.problem.code);
  assert.deepEqual(told, [true, "validation_failed"]);
});

test("a webhook is added, tested, looked at and removed", { skip }, async () => {
  const { webhooks } = client();
  const added = await webhooks.add({ url: "https://hooks.example/in", types: ["reservation.confirmed.v1"] });
  assert.deepEqual((await webhooks.get(added.id)).types, ["reservation.confirmed.v1"]);
  assert.notEqual((await webhooks.rotate(added.id, { overlapSeconds: 60 })).secret, added.secret);
  const delivery = await webhooks.delivery(added.id, await webhooks.test(added.id));
  assert.equal(delivery.type, "webhook.test.v1");
  await webhooks.change(added.id, { enabled: false });
  const listed = [];
  for await (const one of webhooks.list({ pageSize: 1 })) listed.push(one.enabled || one.id);
  assert.ok(listed.includes(added.id));
  await webhooks.remove(added.id);
  await assert.rejects(webhooks.get(added.id), NotFound);
});
