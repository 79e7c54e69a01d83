/**
 * Follows reservation results on the topic, with kafkajs.
 *
 * It records the events that it has handled in a file, written before the offset is committed: after a crash in between, events come
 * again and are recognised. In production that file is a table, written in the transaction that does the work.
 */

import { readFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { Kafka, logLevel } from "kafkajs";

const { KAFKA = "localhost:9092", TOPIC = "reservations.results", GROUP = "bookings", HANDLED = "handled.txt" } = process.env;
const KNOWN = new Set(["confirmed", "rejected", "failed", "in_doubt", "cancelled"].map((one) => `reservation.${one}.v1`));

/** The last revision of each submission that was handled. */
const revisions = new Map();

/** Remember the event, unless it or a later one of its submission is known: an id is `<requestId>.<revision>`. */
function see(id) {
  const [requestId, revision] = id.split(".");
  if (Number(revision) <= (revisions.get(requestId) ?? 0)) return false;
  revisions.set(requestId, Number(revision));
  return true;
}

const file = await open(HANDLED, "a+");
for (const id of readFileSync(HANDLED, "utf8").split("\n").filter(Boolean)) see(id);

async function handle({ headers, value }) {
  const [id, type] = [String(headers.ce_id), String(headers.ce_type)];
  if (!KNOWN.has(type)) return; // Types, like fields, are added over time.
  const { test, requestId, reservation } = JSON.parse(value);
  if (test || !see(id)) return;
  console.log(type, requestId, reservation.pmsReservationId ?? reservation.problem?.code);
  await file.write(`${id}\n`);
  await file.sync();
}

const consumer = new Kafka({ brokers: KAFKA.split(","), logLevel: logLevel.ERROR }).consumer({ groupId: GROUP });
consumer.on(consumer.events.CRASH, ({ payload }) => {
  if (!payload.restart) process.exitCode = 1; // It has given up: let whoever runs this program start it anew.
});
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, stop);

async function stop() {
  await consumer.disconnect(); // What was begun is handled, and its offset committed.
  await file.close();
}

await consumer.connect();
await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
await consumer.run({ eachMessage: ({ message }) => handle(message) });
