/** Reads fields of JSON that came from elsewhere. A field that is missing or of another type is `undefined`. */

export type Json = Readonly<Record<string, unknown>>;

export function object(value: unknown): Json | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : undefined;
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export function number(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}

/** An integer as a decimal string, or as a number. */
export function integer(value: unknown): bigint | undefined {
  if (typeof value === "string" && /^-?\d{1,30}$/.test(value)) return BigInt(value);
  return typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : undefined;
}
