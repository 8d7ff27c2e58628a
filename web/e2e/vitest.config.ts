/** Browser tests run one after the other: they share one machine, and timings of one would disturb the next. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // What a page shows after a step may be a frame or two away, and many on a busy machine.
    expect: { poll: { timeout: 10_000 } },
    include: ["e2e/**/*.e2e.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
