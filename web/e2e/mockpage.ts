/** The built page before made-up data, with the content policy that the real server sends. */
import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join, normalize } from "node:path";
import { mock, type MockOptions } from "../dev/mock";

export const POLICY =
  "default-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const DIST = join(import.meta.dirname, "../dist");
const TYPES: Readonly<Record<string, string>> = {
  html: "text/html",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
};

export async function serveMock(options: MockOptions = {}): Promise<{ url: string; stop: () => Promise<void> }> {
  const api = mock(options);
  const server: Server = createServer((request, response) => {
    api(request, response, () => {
      const path = normalize(new URL(request.url ?? "/", "http://mock").pathname);
      const file = join(DIST, path === "/" ? "index.html" : path);
      if (!existsSync(file)) {
        response.statusCode = 404;
        response.end();
        return;
      }
      response.setHeader("content-type", TYPES[file.split(".").pop() ?? ""] ?? "application/octet-stream");
      response.setHeader("content-security-policy", POLICY);
      response.end(readFileSync(file));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/`,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}
