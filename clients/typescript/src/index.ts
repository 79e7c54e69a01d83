/**
 * A client of the reservation forwarder for Node.js and other runtimes with fetch and WebCrypto. It depends on nothing.
 *
 *     const client = new ForwarderClient({ baseUrl, token, workspace, account });
 *     const { requestId } = await client.submit({ … }, { idempotencyKey: "order-42" });
 *     const outcome = await client.wait(requestId);
 */

export { withKeys } from "./bulk.js";
export { ForwarderClient, type CallOptions, type ClientOptions, type SubmitOptions } from "./client.js";
export { Conflict, ForwarderError, NotAllowed, NotFound, OutcomeTimeout, RateLimited, Refused, Unavailable, Unexpected } from "./errors.js";
export { Webhooks, type ListOptions } from "./management.js";
export type { Clock, RetryPolicy } from "./requests.js";
export type * from "./types.js";
export { verifyWebhook, WebhookInvalid, type WebhookEvent } from "./webhooks.js";
