/**
 * Requests to the server this page came from.
 *
 * Invariants: nothing throws; an outcome is a value or an error with a stable code. No request leaves for another
 * origin: every address is made relative to the page, so that a proxy may serve it below any path. A 401 is told to the
 * session, which asks for a token.
 */
import type { Json } from "./check";

export interface ApiError {
  /** The server's `E_…`, or `NETWORK`, `ABORTED`, `FORMAT`. */
  readonly code: string;
  readonly message: string;
  /** HTTP status, 0 if there was no answer. */
  readonly status: number;
  /** What may help. */
  readonly hint?: string;
  /** Where in a text that was sent, both from 1. */
  readonly line?: number;
  readonly column?: number;
}

export type Outcome<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: ApiError };

export type Query = readonly (readonly [name: string, value: string])[];

export function failure(code: string, message: string, status = 0): { ok: false; error: ApiError } {
  return { ok: false, error: { code, message, status } };
}

export interface RequestOptions {
  readonly signal?: AbortSignal;
  readonly accept?: string;
  /** With a body the request is a POST. */
  readonly body?: string;
  readonly contentType?: string;
}

/** What a client must know of who asks. */
export interface Credentials {
  token(): string | undefined;
  /** The server does not let this token in (or wants one). */
  refused(): void;
}

export class Client {
  constructor(
    private readonly credentials: Credentials,
    private readonly base: string,
    private readonly send: typeof fetch = (...args) => fetch(...args),
  ) {}

  address(path: string, query: Query = []): string {
    const url = new URL(path, this.base);
    for (const [name, value] of query) url.searchParams.append(name, value);
    return url.href;
  }

  /** The answer with a good status, its body unread. */
  async open(path: string, query: Query, options: RequestOptions = {}): Promise<Outcome<Response>> {
    const headers = new Headers({ accept: options.accept ?? "application/json" });
    const token = this.credentials.token();
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    if (options.contentType !== undefined) headers.set("content-type", options.contentType);
    let response: Response;
    try {
      // `no-cache` asks the server whether the browser's copy still holds (ETag): an answer without a body if so.
      response = await this.send(this.address(path, query), {
        headers,
        ...(options.body === undefined ? {} : { method: "POST", body: options.body }),
        cache: "no-cache",
        credentials: "same-origin",
        ...(options.signal ? { signal: options.signal } : {}),
      });
    } catch (error) {
      return caught(error);
    }
    if (response.ok) return { ok: true, value: response };
    if (response.status === 401) this.credentials.refused();
    return { ok: false, error: await errorOf(response) };
  }

  async json(path: string, query: Query = [], options: RequestOptions = {}): Promise<Outcome<unknown>> {
    const opened = await this.open(path, query, options);
    if (!opened.ok) return opened;
    try {
      return { ok: true, value: (await opened.value.json()) as unknown };
    } catch (error) {
      return caught(error);
    }
  }

  async bytes(path: string, query: Query, options: RequestOptions = {}): Promise<Outcome<ArrayBuffer>> {
    const opened = await this.open(path, query, options);
    if (!opened.ok) return opened;
    try {
      return { ok: true, value: await opened.value.arrayBuffer() };
    } catch (error) {
      return caught(error);
    }
  }
}

function caught(error: unknown): Outcome<never> {
  if (error instanceof DOMException && error.name === "AbortError") return failure("ABORTED", "cancelled");
  if (error instanceof SyntaxError) return failure("FORMAT", `the server's answer is not JSON: ${error.message}`);
  return failure("NETWORK", "the server is not reachable");
}

async function errorOf(response: Response): Promise<ApiError> {
  const { status } = response;
  try {
    const body = (await response.json()) as unknown;
    if (typeof body === "object" && body !== null && "code" in body && "message" in body) {
      const { hint, line, column } = body as Json;
      return {
        code: String(body.code),
        message: String(body.message),
        status,
        ...(typeof hint === "string" ? { hint } : {}),
        ...(typeof line === "number" && typeof column === "number" ? { line, column } : {}),
      };
    }
  } catch {
    // Not JSON: a proxy's page, say. The status has to do.
  }
  return { code: `HTTP_${status}`, message: `the server answered ${status} ${response.statusText}`.trim(), status };
}
