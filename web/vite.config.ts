/** Builds the page into `dist`: one script, one style sheet, no inline anything, all addresses relative. */
import { defineConfig } from "vitest/config";

// Tests of local time need a zone whose clocks change.
process.env["TZ"] = "Europe/Berlin";

export default defineConfig({
  base: "./",
  plugins: [
    {
      name: "mock-server",
      async configureServer(server) {
        const { mock } = (await server.ssrLoadModule("/dev/mock.ts")) as typeof import("./dev/mock");
        server.middlewares.use(mock());
      },
    },
  ],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
  },
  test: { include: ["src/**/*.test.ts", "dev/**/*.test.ts"], environment: "node" },
});
