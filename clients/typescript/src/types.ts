/** The contract's types by names of their own. They are generated from it when the client is built. */

import type { components, operations } from "./contract.js";

type Schemas = components["schemas"];

export type BookingEngineReservation = Schemas["BookingEngineReservation"];
export type GeneralReservation = Schemas["GeneralReservation"];
export type Reservation = Schemas["Reservation"];
export type Submission = Schemas["Submission"];
export type Status = Schemas["Status"];
export type Problem = Schemas["Problem"];
export type SubmissionWarning = Schemas["SubmissionWarning"];
export type DryRun = Schemas["DryRun"];
export type Cursors = Schemas["Cursors"];
export type CancellationStatus = Schemas["CancellationStatus"];

export type Webhook = Schemas["Webhook"];
/** A webhook, and its new secret, which is shown only this once. */
export type WebhookWithSecret = Schemas["WebhookWithSecret"];
export type WebhookDelivery = Schemas["WebhookDelivery"];
export type NewWebhook = Schemas["NewWebhook"];
/** What is to be changed; what is left out stays as it is. */
export type WebhookChange = Schemas["WebhookChange"];
export type DeliveryStatus = Schemas["DeliveryStatus"];

type Query = NonNullable<operations["listReservationsV1"]["parameters"]["query"]>;

/** Which reservations are listed: those to which all of this applies. Without a `status`: what was made and what is under way. */
export type Filters = Omit<Query, "limit" | "cursor">;

/** One page of a list. Keep `cursors.next` to go on later. */
export interface Page {
  reservations: Reservation[];
  limit: number;
  cursors: Cursors;
}

/** One reservation of many. Without a key of yours it gets one of the client's, as by `withKeys`. */
export type Item = (
  | { operation: "booking-engine"; reservation: BookingEngineReservation }
  | { operation: "general"; reservation: GeneralReservation }
) & { idempotencyKey?: string; deadlineSeconds?: number };

/** One reservation of many, under its key. */
export type KeyedItem = Item & { idempotencyKey: string };

/** What an answer says of a submission, and its headers of the answer. */
export interface Submitted {
  requestId: string;
  status: Status;
  /** The record, where the answer has it: of an outcome within the wait. */
  record?: Reservation;
  /** Why it was rejected, where that was the outcome within the wait. */
  problem?: Problem;
  warnings: SubmissionWarning[];
  statusUrl?: string;
  /** The key it was sent under. */
  idempotencyKey?: string;
  /** That key had come before: nothing new was made. */
  idempotentReplayed: boolean;
  /** The earlier submission that it repeats without a key. */
  duplicateOf?: string;
  /** Names the request in the service's log. */
  httpRequestId?: string;
}

/** A cancellation that was asked for; its outcome where it came within the wait. */
export interface Cancelling extends Submitted {
  cancellation?: CancellationStatus;
}

/** What became of one item of a bulk: it is safe, or why it is not. */
export type ItemResult =
  | { accepted: true; requestId: string; status: Status; idempotencyKey: string; idempotentReplayed: boolean; duplicate: boolean; warnings: SubmissionWarning[] }
  | { accepted: false; problem: Problem; idempotencyKey: string };

/** What became of a submission. A later contract may add a status: keep a `default` in your `switch`. */
export type Outcome =
  | { status: "CONFIRMED" | "CANCELLED"; record: Reservation; submission: Submission }
  | { status: "REJECTED" | "FAILED" | "IN_DOUBT"; problem: Problem; submission: Submission };
