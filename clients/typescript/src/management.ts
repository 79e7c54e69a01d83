/** Managing to which addresses results are posted. */

import type { CallOptions } from "./client.js";
import { Unexpected } from "./errors.js";
import { dataOf, queryOf, type Answer, type ApiRequest, type Requester } from "./requests.js";
import type { DeliveryStatus, NewWebhook, Webhook, WebhookChange, WebhookDelivery, WebhookWithSecret } from "./types.js";

const WEBHOOKS = "/api/v1/vrs/webhooks";
const MAX_PAGE = 200;

export interface ListOptions extends CallOptions {
  pageSize?: number;
}

/**
 * The webhooks of a client's workspace, which its API key may manage with the scope `webhooks`: a live key, no test key. Rejects with
 * `NotFound` where the workspace has no such webhook or delivery.
 *
 * `add`, `rotate` and `test` are not made again by the client after no answer, since they would act twice: they reject with
 * `Unavailable`, and what took effect shows in `list`, `get` and `deliveries`.
 */
export class Webhooks {
  constructor(private readonly requester: Requester) {}

  /**
   * Have results posted to `url`: `https`, and an address of the public internet. Without `types`: all, and those to come. The secret
   * is in this answer and in no other.
   */
  async add(webhook: Pick<NewWebhook, "url"> & Partial<NewWebhook>, options: CallOptions = {}): Promise<WebhookWithSecret> {
    return one(await this.send("POST", "", options, { body: JSON.stringify(webhook), repeatable: false }));
  }

  /** Every webhook, in the order in which they were added. */
  list(options: ListOptions = {}): AsyncGenerator<Webhook> {
    return this.every("", {}, options);
  }

  /** One webhook. */
  async get(id: string, options: CallOptions = {}): Promise<Webhook> {
    return one(await this.send("GET", path(id), options));
  }

  /** Change what is named. `enabled: false` disables it, and ends what waits to be delivered. */
  async change(id: string, change: WebhookChange, options: CallOptions = {}): Promise<Webhook> {
    return one(await this.send("PATCH", path(id), options, { body: JSON.stringify(change) }));
  }

  /**
   * Remove it, with its waiting deliveries and its log. If the answer is lost, the client asks again, and may then reject with
   * `NotFound` because the webhook is gone.
   */
  async remove(id: string, options: CallOptions = {}): Promise<void> {
    await this.send("DELETE", path(id), options);
  }

  /**
   * Replace the secret; the new one is in this answer and in no other. For `overlapSeconds` (a day) deliveries are signed with the old
   * one too.
   */
  async rotate(id: string, options: CallOptions & { overlapSeconds?: number } = {}): Promise<WebhookWithSecret> {
    const { overlapSeconds } = options;
    const body = JSON.stringify(overlapSeconds === undefined ? {} : { overlapSeconds });
    return one(await this.send("POST", path(id, "rotate"), options, { body, repeatable: false }));
  }

  /** Post a `webhook.test.v1` to this webhook alone; the id of its delivery. Rejects with `Conflict` where it is disabled. */
  async test(id: string, options: CallOptions = {}): Promise<number> {
    const { deliveryId } = one<{ deliveryId: number }>(await this.send("POST", path(id, "test"), options, { repeatable: false }));
    return deliveryId;
  }

  /** Its deliveries, the newest first; those of `status` alone, where that is given. */
  deliveries(id: string, options: ListOptions & { status?: DeliveryStatus } = {}): AsyncGenerator<WebhookDelivery> {
    return this.every(path(id, "deliveries"), { status: options.status }, options);
  }

  /** One delivery, with its last attempts. */
  async delivery(id: string, deliveryId: number, options: CallOptions = {}): Promise<WebhookDelivery> {
    return one(await this.send("GET", path(id, "deliveries", deliveryId), options));
  }

  /** Deliver it once more, now, even if it succeeded. Rejects with `Conflict` where the webhook is disabled. */
  async resend(id: string, deliveryId: number, options: CallOptions = {}): Promise<WebhookDelivery> {
    return one(await this.send("POST", path(id, "deliveries", deliveryId, "resend"), options));
  }

  private async *every<T>(path: string, filters: object, { pageSize = MAX_PAGE, signal }: ListOptions): AsyncGenerator<T> {
    for (let cursor = ""; ; ) {
      const query = queryOf({ ...filters, limit: pageSize, cursor });
      const { members } = await this.send("GET", path, { ...(signal && { signal }) }, { query });
      const { data, meta } = members as { data?: T[]; meta?: { cursors?: { next?: string } } };
      if (!Array.isArray(data) || !meta?.cursors) throw new Unexpected("the answer is not a page");
      yield* data;
      cursor = meta.cursors.next ?? "";
      if (!cursor) return;
    }
  }

  private send(method: ApiRequest["method"], path: string, { signal }: CallOptions, more: Partial<ApiRequest> = {}): Promise<Answer> {
    return this.requester.answer({ method, path: `${WEBHOOKS}${path}`, ...more, ...(signal && { signal }) });
  }
}

function path(...parts: (string | number)[]): string {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

function one<T>(answer: Answer): T {
  return dataOf(answer) as T;
}
