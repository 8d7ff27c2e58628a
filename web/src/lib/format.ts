/** Numbers and sizes as text for people. */

/** A value with up to `digits` significant digits, without trailing zeros; very large or small ones with an exponent. */
export function formatValue(value: number, digits = 6): string {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-5) {
    const [mantissa = "", exponent = ""] = value.toExponential(Math.max(0, digits - 1)).split("e");
    return minus(`${Number(mantissa)}e${Number(exponent)}`);
  }
  return minus(String(Number(value.toPrecision(digits))));
}

/** A single value as exactly as people read: whole numbers in full, others to nine digits. */
export function formatReading(value: number): string {
  return Number.isInteger(value) && Math.abs(value) >= 1e4 && Math.abs(value) < 1e15
    ? formatCount(value)
    : formatValue(value, 9);
}

/** A value with as many digits after the point as its scale needs. */
export function formatFixed(value: number, decimals: number): string {
  return minus(value.toFixed(Math.min(20, Math.max(0, decimals))));
}

/** Whole numbers with thin spaces between groups of three. */
export function formatCount(value: number | bigint): string {
  return minus(String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f"));
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function formatBytes(bytes: number): string {
  let size = bytes;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < SIZES.length - 1) {
    size /= 1024;
    unit++;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${size.toFixed(digits)} ${SIZES[unit] ?? "B"}`;
}

export function formatShare(share: number): string {
  const percent = share * 100;
  if (percent === 0) return "0 %";
  return `${percent >= 10 ? percent.toFixed(0) : Number(percent.toPrecision(2))} %`;
}

function minus(text: string): string {
  return text.replaceAll("-", "−");
}
