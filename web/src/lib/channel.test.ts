import { expect, test } from "vitest";
import { channelOf, splitChannel, streamLabel } from "./channel";

test("channels are divided at the last bare dot", () => {
  const cases: [string, string, string][] = [
    ["obd,car=a", "speed", "obd,car=a.speed"],
    ["net,host=10.0.0.1", "bytes", "net,host=10.0.0.1.bytes"],
    ["net,host=a", "rx.bytes", "net,host=a.rx\\.bytes"],
  ];
  for (const [stream, field, channel] of cases) {
    expect(channelOf(stream, field)).toBe(channel);
    expect(splitChannel(channel)).toEqual({ stream, field });
  }
  expect(splitChannel("nothing")).toBeNull();
  expect(splitChannel("trailing.")).toBeNull();
});

test("streams are shown without their escapes", () => {
  expect(streamLabel("my\\ table,place=New\\ York\\,\\ NY,a\\=b=c")).toEqual({
    table: "my table",
    tags: [
      ["place", "New York, NY"],
      ["a=b", "c"],
    ],
  });
});
