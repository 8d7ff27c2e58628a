import { expect, test } from "vitest";
import { formatBytes, formatCount, formatReading, formatShare, formatValue } from "./format";

test("numbers read well", () => {
  expect(formatValue(0.1 + 0.2)).toBe("0.3");
  expect(formatValue(-1234.5678)).toBe("−1234.57");
  expect(formatValue(6.02214076e23)).toBe("6.02214e23");
  expect(formatValue(1e-9)).toBe("1e−9");
  expect(formatValue(NaN)).toBe("–");
  expect(formatReading(1_716_548_400_123)).toBe("1\u202f716\u202f548\u202f400\u202f123");
  expect(formatReading(20.123456789)).toBe("20.1234568");
  expect(formatReading(4.2)).toBe("4.2");
  expect(formatCount(7_781_402_113)).toBe("7\u202f781\u202f402\u202f113");
  expect(formatBytes(1023)).toBe("1023 B");
  expect(formatBytes(12_903_441_200)).toBe("12.0 GiB");
  expect(formatShare(0.048)).toBe("4.8 %");
  expect(formatShare(0)).toBe("0 %");
});
