/** A service that answers as a test wrote it down, in the test's own time; and a body to send. */

import { ForwarderClient, type BookingEngineReservation, type Clock, type RetryPolicy } from "../src/index.js";

export const REQUEST_ID = `rsv_${"a".repeat(32)}`;

export const BOOKING: BookingEngineReservation = {
  morChannel: "SELF",
  propertyId: 1001,
  roomId: "A-7",
  arrivalDate: "2031-06-01",
  departureDate: "2031-06-05",
  guest: {
    name: "Ana Ruiz",
    firstName: "Ana",
    lastName: "Ruiz",
    email: "ana.ruiz@example.com",
    address: { line1: "Calle Mayor 1", line2: "", postalCode: "28013", city: "Madrid", state: "Madrid", country: "ES" },
  },
  numberOfGuests: 2,
  totalPrice: 480.5,
  currency: "EUR",
};

interface Sent {
  url: URL;
  method: string;
  headers: Headers;
  body: string;
  at: number;
}

type Step = { status: number; json?: unknown; text?: string; headers?: Record<string, string>; takesMs?: number } | Error;

/** Takes one step after the other for each request, the last one for ever, and keeps what it was sent, and when. */
export class Scripted {
  readonly sent: Sent[] = [];
  private milliseconds = 0;
  private readonly steps: Step[];

  readonly clock: Clock = {
    now: () => Date.UTC(2027, 0, 1) + this.milliseconds,
    monotonic: () => this.milliseconds,
    sleep: async (ms, signal) => {
      signal?.throwIfAborted();
      this.milliseconds += ms;
    },
  };

  constructor(...steps: Step[]) {
    this.steps = steps;
  }

  client(retries: Partial<RetryPolicy> = {}): ForwarderClient {
    return new ForwarderClient({
      baseUrl: "http://forwarder.test/",
      token: "token",
      workspace: "alpha",
      account: "alpha-1",
      retries,
      clock: this.clock,
      fetch: async (input, init) => this.answer(new URL(String(input)), init ?? {}),
    });
  }

  private answer(url: URL, init: RequestInit): Response {
    const { method = "GET", body } = init;
    this.sent.push({ url, method, headers: new Headers(init.headers), body: String(body ?? ""), at: this.milliseconds });
    const step = this.steps.length > 1 ? this.steps.shift() : this.steps[0];
    if (!step) throw new Error("nothing was written down");
    if (step instanceof Error) throw step;
    this.milliseconds += step.takesMs ?? 0;
    return new Response(step.text ?? JSON.stringify(step.json), { status: step.status, headers: step.headers ?? {} });
  }
}

export function problem(status: number, code: string, headers: Record<string, string> = {}, more: object = {}): Step {
  return { status, headers, json: { type: `/problems/${code}`, title: code, status, detail: `It is ${code}.`, code, ...more } };
}

export function accepted(headers: Record<string, string> = {}): Step {
  const data = { requestId: REQUEST_ID, status: "PENDING", acceptedAt: "2027-01-01T00:00:00.000Z", statusUrl: "http://forwarder.test/x" };
  return { status: 202, headers, json: { success: true, data } };
}

export function standing(status: string, more: object = {}, takesMs = 0): Step {
  const data = { requestId: REQUEST_ID, status, attempts: [], problem: null, record: null, cancellation: null, ...more };
  return { status: 200, json: { success: true, data }, takesMs };
}
