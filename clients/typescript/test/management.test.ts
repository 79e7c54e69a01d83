import assert from "node:assert/strict";
import { test } from "node:test";

import { Conflict, NotFound, RateLimited, Unavailable, Unexpected, type Webhooks } from "../src/index.js";
import { problem, Scripted } from "./scripted.js";

const WEBHOOK = { id: "whk_a", url: "https://hooks.example/in", types: null, description: "", enabled: true };
const SECRET = `whsec_${Buffer.from("secret").toString("base64")}`;

function answer(data: unknown, next = ""): { status: number; json: unknown } {
  return { status: 200, json: { data, meta: { limit: 1, cursors: { previous: "", current: "1", next } } } };
}

function hooks(service: Scripted): Webhooks {
  return service.client().webhooks;
}

async function collected<T>(from: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of from) all.push(one);
  return all;
}

test("each operation asks for what it says, and tells what is answered", async () => {
  const service = new Scripted(
    answer({ ...WEBHOOK, secret: SECRET }),
    answer(WEBHOOK),
    answer({ ...WEBHOOK, enabled: false }),
    answer({ ...WEBHOOK, secret: SECRET }),
    answer({ deliveryId: 7 }),
    answer({ id: 7 }),
    answer({ id: 7 }),
    answer({ id: "whk_a", removed: true }),
  );
  const webhooks = hooks(service);
  const added = await webhooks.add({ url: WEBHOOK.url, types: ["reservation.confirmed.v1"] });
  assert.deepEqual([added.id, added.secret], ["whk_a", SECRET]);
  assert.equal((await webhooks.get("a b")).url, WEBHOOK.url);
  assert.equal((await webhooks.change("whk_a", { enabled: false })).enabled, false);
  assert.equal((await webhooks.rotate("whk_a", { overlapSeconds: 60 })).secret, SECRET);
  assert.equal(await webhooks.test("whk_a"), 7);
  assert.equal((await webhooks.delivery("whk_a", 7)).id, 7);
  assert.equal((await webhooks.resend("whk_a", 7)).id, 7);
  await webhooks.remove("whk_a");
  const path = (one: { url: URL }): string => one.url.pathname.replace("/api/v1/vrs/webhooks", "");
  assert.deepEqual(
    service.sent.map((one) => [one.method, path(one), one.body]),
    [
      ["POST", "", `{"url":"${WEBHOOK.url}","types":["reservation.confirmed.v1"]}`],
      ["GET", "/a%20b", ""],
      ["PATCH", "/whk_a", '{"enabled":false}'],
      ["POST", "/whk_a/rotate", '{"overlapSeconds":60}'],
      ["POST", "/whk_a/test", ""],
      ["GET", "/whk_a/deliveries/7", ""],
      ["POST", "/whk_a/deliveries/7/resend", ""],
      ["DELETE", "/whk_a", ""],
    ],
  );
});

test("lists follow their pages", async () => {
  const service = new Scripted(answer([WEBHOOK], "2"), answer([WEBHOOK]), answer([{ id: 2 }], "2"), answer([{ id: 1 }]));
  assert.equal((await collected(hooks(service).list({ pageSize: 1 }))).length, 2);
  const deliveries = await collected(hooks(service).deliveries("whk_a", { status: "FAILED", pageSize: 1 }));
  assert.deepEqual(deliveries.map((one) => one.id), [2, 1]);
  assert.deepEqual(
    service.sent.map((one) => Object.fromEntries(one.url.searchParams)),
    [{ limit: "1" }, { limit: "1", cursor: "2" }, { status: "FAILED", limit: "1" }, { status: "FAILED", limit: "1", cursor: "2" }],
  );
  await assert.rejects(collected(hooks(new Scripted(answer("no page"))).list()), Unexpected);
});

const twice: Record<string, (webhooks: Webhooks) => Promise<unknown>> = {
  add: (webhooks) => webhooks.add({ url: WEBHOOK.url }),
  rotate: (webhooks) => webhooks.rotate("whk_a"),
  test: (webhooks) => webhooks.test("whk_a"),
};
for (const [name, call] of Object.entries(twice)) {
  test(`${name}, which would act twice, is made again only if it surely did nothing`, async () => {
    for (const trouble of [new TypeError("fetch failed"), problem(503, "tenancy_unavailable"), { status: 504, text: "" }]) {
      const service = new Scripted(trouble, answer(WEBHOOK));
      await assert.rejects(call(hooks(service)), Unavailable);
      assert.equal(service.sent.length, 1);
    }
    const limited = new Scripted(problem(429, "rate_limited"), answer(WEBHOOK));
    await call(hooks(limited));
    assert.equal(limited.sent.length, 2);
  });
}

test("what does the same twice is made again, and refusals are told apart", async () => {
  const service = new Scripted(new TypeError("fetch failed"), answer(WEBHOOK));
  await hooks(service).change("whk_a", { enabled: true });
  assert.equal(service.sent.length, 2);
  await assert.rejects(hooks(new Scripted(problem(404, "webhook_not_found"))).get("whk_a"), NotFound);
  await assert.rejects(hooks(new Scripted(problem(409, "webhook_disabled"))).test("whk_a"), Conflict);
  const limited = problem(429, "rate_limited", { "Retry-After": "3600" });
  await assert.rejects(hooks(new Scripted(limited)).test("whk_a"), RateLimited);
});
