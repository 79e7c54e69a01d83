/**
 * Webhooks as they arrive: whether they are the service's own, and what they say. Standard Webhooks 1.0, with HMAC-SHA256 by
 * WebCrypto, so that it runs wherever fetch does.
 */

import type { Problem, Reservation, Status } from "./types.js";

/** The delivery is not one that the holder of the secret signed, or not of now. Answer it with 400, and do nothing. */
export class WebhookInvalid extends Error {
  override readonly name = "WebhookInvalid";
}

/** A delivery that was verified. `id` stays the same when the event is delivered again: pass over what you have seen. */
export interface WebhookEvent {
  id: string;
  type: string;
  timestamp: string;
  /** Of an event about a reservation: its submission, and the record. A later contract may add other events. */
  data: { requestId?: string; status?: Status; reservation?: Reservation; problem?: Problem } & Record<string, unknown>;
}

type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/**
 * The event in `payload`, the body exactly as received, byte for byte. `secrets`: the endpoint's `whsec_…`, or several while one
 * replaces another.
 *
 * Rejects with `WebhookInvalid` unless one of the signatures is of one of the secrets, and the delivery was sent within
 * `toleranceSeconds` of now; with `TypeError` for a secret that is none.
 */
export async function verifyWebhook(
  payload: string | Uint8Array,
  headers: HeaderSource,
  secrets: string | readonly string[],
  options: { toleranceSeconds?: number; now?: Date } = {},
): Promise<WebhookEvent> {
  const keys = await Promise.all((typeof secrets === "string" ? [secrets] : secrets).map(keyOf));
  const [id, sentAt, signatures] = (["id", "timestamp", "signature"] as const).map((name) => header(headers, `webhook-${name}`)) as [
    string,
    string,
    string,
  ];
  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  if (!(await isSigned(joined(`${id}.${sentAt}.`, body), signatures, keys))) throw new WebhookInvalid("no signature is of this secret");
  requireRecent(sentAt, options.now ?? new Date(), options.toleranceSeconds ?? 300);
  return eventOf(id, body);
}

function header(headers: HeaderSource, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : Object.entries(headers).find(([each]) => each.toLowerCase() === name)?.[1];
  if (typeof value !== "string") throw new WebhookInvalid(`the header ${name} is missing`);
  return value;
}

async function keyOf(secret: string): Promise<CryptoKey> {
  const bytes = bytesOf(secret.replace(/^whsec_/, ""));
  if (!bytes?.length) throw new TypeError("a webhook secret is `whsec_` and base64");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

/** Each signature is compared by WebCrypto, in constant time. */
async function isSigned(signed: Uint8Array<ArrayBuffer>, signatures: string, keys: readonly CryptoKey[]): Promise<boolean> {
  const given = signatures
    .split(" ")
    .filter((one) => one.startsWith("v1,"))
    .map((one) => bytesOf(one.slice("v1,".length)))
    .filter((one) => one !== undefined);
  const pairs = keys.flatMap((key) => given.map((one) => crypto.subtle.verify("HMAC", key, one, signed)));
  return (await Promise.all(pairs)).some(Boolean);
}

function requireRecent(sentAt: string, now: Date, toleranceSeconds: number): void {
  if (!/^\d+$/.test(sentAt)) throw new WebhookInvalid("its timestamp is no unix time");
  if (Math.abs(now.getTime() / 1000 - Number(sentAt)) > toleranceSeconds) {
    throw new WebhookInvalid("it was not sent just now: an old delivery that somebody repeats, or a clock that is wrong");
  }
}

function eventOf(id: string, body: Uint8Array): WebhookEvent {
  let members: unknown;
  try {
    members = JSON.parse(new TextDecoder().decode(body));
  } catch (error) {
    throw new WebhookInvalid("its body is not JSON", { cause: error });
  }
  if (typeof members !== "object" || members === null || !("type" in members) || !("data" in members)) {
    throw new WebhookInvalid("its body is not of the contract: it has no type, or no data");
  }
  return { ...(members as Omit<WebhookEvent, "id">), id };
}

function joined(head: string, body: Uint8Array): Uint8Array<ArrayBuffer> {
  const start = new TextEncoder().encode(head);
  const all = new Uint8Array(start.length + body.length);
  all.set(start);
  all.set(body, start.length);
  return all;
}

/** Base64 as bytes; undefined for what is none. */
function bytesOf(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  } catch {
    return undefined;
  }
}
