import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { verifyWebhook, WebhookInvalid } from "../src/index.js";

const SECRET = `whsec_${Buffer.from(Array.from({ length: 32 }, (_, one) => one)).toString("base64")}`;
const OTHER = `whsec_${Buffer.from(Array.from({ length: 32 }, (_, one) => one + 1)).toString("base64")}`;
const NOW = new Date("2027-01-15T09:30:01Z");
const BODY = JSON.stringify({ type: "reservation.confirmed.v1", timestamp: "2027-01-15T09:30:00.412Z", data: { requestId: "rsv_é" } });

/** Signed by node:crypto, after the specification. */
function signed(secret = SECRET, body = BODY, id = "evt.1", at = NOW): Record<string, string> {
  const seconds = String(Math.floor(at.getTime() / 1000));
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64");
  return { "Webhook-Id": id, "Webhook-Timestamp": seconds, "Webhook-Signature": `v1,${signature}` };
}

test("what was signed is verified and read, as text or bytes, from headers of either kind", async () => {
  for (const payload of [BODY, new TextEncoder().encode(BODY)]) {
    for (const headers of [signed(), new Headers(signed())]) {
      const event = await verifyWebhook(payload, headers, SECRET, { now: NOW });
      assert.deepEqual([event.id, event.type, event.data.requestId], ["evt.1", "reservation.confirmed.v1", "rsv_é"]);
    }
  }
});

test("while a secret is replaced, one of several signatures and one of several secrets will do", async () => {
  const both = { ...signed(), "Webhook-Signature": `v2,abc ${signed(OTHER)["Webhook-Signature"]} ${signed()["Webhook-Signature"]}` };
  await verifyWebhook(BODY, both, SECRET, { now: NOW });
  await verifyWebhook(BODY, both, OTHER, { now: NOW });
  await verifyWebhook(BODY, signed(), [OTHER, SECRET], { now: NOW });
});

const later = new Date(NOW.getTime() + 301_000);
const sooner = new Date(NOW.getTime() - 301_000);
const wrong: Record<string, [string, Record<string, string>, string, Date]> = {
  "another body": [BODY.replace("confirmed", "cancelled"), signed(), SECRET, NOW],
  "another id": [BODY, { ...signed(), "Webhook-Id": "evt.2" }, SECRET, NOW],
  "another time": [BODY, { ...signed(), "Webhook-Timestamp": "1800000000" }, SECRET, NOW],
  "another secret": [BODY, signed(), OTHER, NOW],
  "an old one": [BODY, signed(), SECRET, later],
  "one of the future": [BODY, signed(), SECRET, sooner],
  "no signature": [BODY, { ...signed(), "Webhook-Signature": "" }, SECRET, NOW],
  "no base64": [BODY, { ...signed(), "Webhook-Signature": "v1,%%%" }, SECRET, NOW],
  "a header less": [BODY, { "Webhook-Id": "evt.1" }, SECRET, NOW],
  "no JSON": ["{", signed(SECRET, "{"), SECRET, NOW],
  "no event": ["{}", signed(SECRET, "{}"), SECRET, NOW],
};
for (const [name, [body, headers, secret, now]] of Object.entries(wrong)) {
  test(`${name} is invalid`, async () => {
    await assert.rejects(verifyWebhook(body, headers, secret, { now }), WebhookInvalid);
  });
}

test("the tolerance is the caller's", async () => {
  await verifyWebhook(BODY, signed(), SECRET, { now: later, toleranceSeconds: 301 });
});

test("a secret that is none is the program's fault, and no delivery's", async () => {
  for (const secret of ["whsec_", "whsec_%%%", ""]) await assert.rejects(verifyWebhook(BODY, signed(), secret, { now: NOW }), TypeError);
});
