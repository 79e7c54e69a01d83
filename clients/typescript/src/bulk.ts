/** Many reservations, put into bulks that the service takes. */

import type { Item } from "./types.js";

const MAX_ITEMS = 1_000;
/** The service takes 8 MiB. */
const MAX_BYTES = 7 * 1024 * 1024;

/** What is sent at once: its items' keys, in their order, and its body. */
export interface Bulk {
  keys: string[];
  body: string;
}

/** The items, each under a key, in the order given. Takes no more of `items` than the next bulk needs. */
export function* bulks(items: Iterable<Item>, maxItems = MAX_ITEMS): Generator<Bulk> {
  let keys: string[] = [];
  let texts: string[] = [];
  let size = 0;
  for (const item of items) {
    const idempotencyKey = item.idempotencyKey ?? crypto.randomUUID();
    const text = JSON.stringify({ ...item, idempotencyKey });
    const bytes = new TextEncoder().encode(text).length + 1; // and a comma
    if (keys.length && (keys.length >= maxItems || size + bytes > MAX_BYTES)) {
      yield { keys, body: `[${texts.join(",")}]` };
      [keys, texts, size] = [[], [], 0];
    }
    keys.push(idempotencyKey);
    texts.push(text);
    size += bytes;
  }
  if (keys.length) yield { keys, body: `[${texts.join(",")}]` };
}
