/** Many reservations, put into bulks that the service takes. */

import type { Item, KeyedItem } from "./types.js";

const MAX_ITEMS = 1_000;
/** The service takes 8 MiB. */
const MAX_BYTES = 7 * 1024 * 1024;

/** What is sent at once: its items in their order, and its body. `following`: what was taken already and goes with the next one. */
export interface Bulk {
  items: KeyedItem[];
  body: string;
  following: KeyedItem[];
}

/**
 * The same items, each under a key: its own, or a new one. Keep them before you submit them, and the same can be submitted again, by
 * another process too, and nothing is booked twice.
 */
export function withKeys(items: Iterable<Item>): KeyedItem[] {
  return Array.from(items, keyed);
}

function keyed(item: Item): KeyedItem {
  return { ...item, idempotencyKey: item.idempotencyKey ?? crypto.randomUUID() };
}

/**
 * The items, each under a key, in the order given. Takes no more of `items` than the next bulk needs, but one that is too large for it,
 * and leaves the rest to the caller, however it ends: `for (… of items)` would close a generator.
 */
export function* bulks(items: Iterable<Item>, maxItems = MAX_ITEMS): Generator<Bulk> {
  let taken: KeyedItem[] = [];
  let texts: string[] = [];
  let size = 0;
  const bulk = (following: KeyedItem[]): Bulk => {
    const made = { items: taken, body: `[${texts.join(",")}]`, following };
    [taken, texts, size] = [[], [], 0];
    return made;
  };
  const iterator = items[Symbol.iterator]();
  for (let next = iterator.next(); !next.done; next = iterator.next()) {
    const item = keyed(next.value);
    const text = JSON.stringify(item);
    const bytes = new TextEncoder().encode(text).length + 1; // and a comma
    if (taken.length && size + bytes > MAX_BYTES) yield bulk([item]);
    taken.push(item);
    texts.push(text);
    size += bytes;
    if (taken.length >= maxItems) yield bulk([]);
  }
  if (taken.length) yield bulk([]);
}
