import { describe, expect, test } from "vitest";
import { readFleet } from "./fleet";

describe("what is known of edges", () => {
  test("is read as the server tells it", () => {
    const { role, edges, cloud } = readFleet({
      role: "cloud",
      cloud: null,
      edges: [
        {
          name: "pump-7",
          state: "catching",
          want: { summaries: 8 },
          heard_ns: 1_700_000_000_000,
          current_ns: null,
          copy: { bytes: 10, missing_bytes: 3 },
          rules: [{ table: "pump", want: "full" }],
          about: { sent_today: 5, rate: 20, month_max: 100, written_bytes: 7, version: "0.1.0" },
          is_verifying: false,
          verified: { at_ns: 1, equal: 9, different: 0, missing: 3 },
          error: null,
        },
        { name: "new", state: "invited", want: "full" },
        { nothing: true },
      ],
    });
    expect(role).toBe("cloud");
    expect(cloud).toBeUndefined();
    expect(edges?.map((edge) => edge.name)).toEqual(["pump-7", "new"]);
    expect(edges?.[0]).toMatchObject({
      want: 8,
      rules: 1,
      rate: 20,
      monthMax: 100,
      bytes: 10,
      missing: 3,
      sentToday: 5,
      written: 7,
      heard: 1_700_000_000_000n,
    });
    expect(edges?.[0]?.verified).toEqual({ at: 1n, equal: 9, different: 0, missing: 3 });
    expect(edges?.[1]).toMatchObject({ want: "full", bytes: undefined, verified: undefined, isVerifying: false });
  });

  test("is told by a dispatcher by node", () => {
    const { nodes } = readFleet({
      role: "dispatcher",
      nodes: [{ url: "http://a", is_live: true, edges: 3, connected: 2, error: null }, {}],
    });
    expect(nodes).toHaveLength(1);
    expect(nodes?.[0]).toMatchObject({ url: "http://a", isLive: true, edges: 3, connected: 2, error: undefined });
  });

  test("is nothing where the node has no role", () => {
    expect(readFleet({ role: "single", cloud: null, edges: null })).toEqual({
      role: "single",
      nodes: undefined,
      cloud: undefined,
      edges: undefined,
    });
    expect(readFleet({}).role).toBe("single");
  });
});
